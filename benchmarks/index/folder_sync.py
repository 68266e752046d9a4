"""Changes a watched folder, kills the watching process at random moments, and compares the index.

    python -m benchmarks.index.folder_sync --kills 20 [--json] [--quick]

An index of 1,000 photos follows their folder (`FolderWatch`, as `aladin index sync --watch`). There
10 photos are added, 10 changed, 10 moved (half of them with their folder) and 10 deleted. First the
time is measured until the index, and a service that was started before, have taken them over. Then
the same is done again and again; each time the watching process is killed with SIGKILL at a random
moment of that time, and started again.

take_over_s      seconds from the first change until the index holds them all
service_s        the same for the answers of a running service (not with --quick)
encoded          photos that were encoded without a kill; 20 have new content
moved_encoded    moved photos that were encoded, over all runs
kills            processes that were killed
same             kills after which the index has the ids of a fresh build, each once, and its
                 vectors within 0.002
worst_difference largest difference of a value of an embedding or a token from the fresh build
encoded_twice    photos that were encoded a second time after a kill, over all kills
"""

from __future__ import annotations

import multiprocessing
import random
import shutil
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Generator
from contextlib import closing, contextmanager, nullcontext
from dataclasses import dataclass, field
from multiprocessing.synchronize import Event
from pathlib import Path
from typing import Any

import numpy as np

from aladin_index.build.builder import build_index
from aladin_index.changes.database import FILE_STATES, changes_database
from aladin_index.changes.opening import open_to_read
from aladin_index.encode.item_encoders import PhotoEncoder, Prepared
from aladin_index.encode.source_items import ImageItem
from aladin_index.format.layout import ITEMS, generation_folder, live_generation
from aladin_index.generations.reader import open_index
from aladin_index.settings import BuildSettings
from aladin_index.sync.file_state import sha256_of
from aladin_service.folders.folder_sync import FolderSettings, FolderSync
from aladin_service.folders.watching import FolderWatch
from aladin_service.item_sources import image_items
from benchmarks.lib.measuring import use_one_thread
from benchmarks.lib.output import figures_parser, print_figures
from benchmarks.lib.service_process import ServiceProcess
from benchmarks.lib.small_collection import random_png, save_small_network

_PHOTOS, _QUICK_PHOTOS = 1000, 40
_KILLS, _QUICK_KILLS = 20, 1
_OF_EACH_KIND, _QUICK_OF_EACH_KIND = 10, 2
_TOLERANCE = 0.002  # tokens are stored in float16, and batches of other sizes round differently
_PX = 32
_WAIT_S = 120.0
_FORK = multiprocessing.get_context("fork")


@dataclass
class Figures:
    """Results of the measurement; see the docstring of the module."""

    take_over_s: float = 0.0
    service_s: float | None = None
    encoded: int = 0
    moved_encoded: int = 0
    kills: int = 0
    same: int = 0
    worst_difference: float = 0.0
    encoded_twice: int = 0
    faults: list[str] = field(default_factory=list[str])


class FollowedFolder:
    """A folder of photos and an index that follows it, in a temporary folder."""

    def __init__(self, home: Path, photos: int, of_each_kind: int) -> None:
        """Write the photos, and build their index."""
        self.index, self.folder = home / "index", home / "photos"
        self._home, self._of_each_kind = home, of_each_kind
        self._log = home / "encoded"
        self._checkpoint = home / "checkpoint"
        _run(save_small_network, self._checkpoint)
        pixels = np.random.default_rng(0)
        self._names = [f"{number % 10}/{number:04d}.png" for number in range(photos)]
        for number in range(10):
            (self.folder / str(number)).mkdir(parents=True)
        for name in self._names:
            (self.folder / name).write_bytes(random_png(pixels, _PX))
        together = self.folder / "together"
        together.mkdir()
        self._together = [f"together/{number}.png" for number in range(of_each_kind // 2)]
        for name in self._together:
            (self.folder / name).write_bytes(random_png(pixels, _PX))
        _run(self._build, self.index)
        _run(self._first_pass)
        shutil.copytree(self.folder, home / "photos before")
        shutil.copytree(self.index, home / "index before")
        self._moved: set[str] = set()

    def begin(self) -> None:
        """Restore the folder and its index as they were before the changes."""
        self._log.unlink(missing_ok=True)
        for path in (self.folder, self.index):
            shutil.rmtree(path)
            shutil.copytree(self._home / f"{path.name} before", path)  # with times

    def change(self, seed: int) -> None:
        """Add, change, move and delete photos."""
        draw, count = random.Random(seed), self._of_each_kind
        pixels = np.random.default_rng(1 + seed)
        chosen = draw.sample(self._names, 3 * count)
        singly = count - len(self._together)
        changed, moved, deleted = chosen[:count], chosen[count:][:singly], chosen[-count:]
        for number in range(count):
            added = self.folder / f"{number % 10}" / f"new-{number}.png"
            added.write_bytes(random_png(pixels, _PX))
            path = self.folder / changed[number]
            if number % 2:  # as an editor does
                aside = path.with_name(f".{path.name}.part")
                aside.write_bytes(random_png(pixels, _PX))
                aside.replace(path)
            else:
                path.write_bytes(random_png(pixels, _PX))
            (self.folder / deleted[number]).unlink()
        for name in moved:
            (self.folder / name).rename(self.folder / "5" / f"moved-{Path(name).name}")
        (self.folder / "together").rename(self.folder / "elsewhere")
        self._moved = {f"5/moved-{Path(name).name}" for name in moved}
        self._moved |= {f"elsewhere/{Path(name).name}" for name in self._together}

    @property
    def has_taken_over(self) -> bool:
        """Whether the index has the ids and the contents of the folder."""
        paths = {path for path in self.folder.rglob("*.png") if not path.name.startswith(".")}
        states = _states(self.index)
        expected = {str(path.relative_to(self.folder)): path for path in paths}
        return states.keys() == expected.keys() and all(
            states[name] == sha256_of(path.read_bytes()) for name, path in expected.items()
        )

    def compare(self) -> tuple[float, str | None]:
        """Compare with a fresh build: the largest difference of a value, and the fault if any."""
        fresh = self._home / "fresh"
        _run(self._build, fresh)
        try:
            return _run(_difference, self.index, fresh)
        finally:
            shutil.rmtree(fresh)

    def encoded(self) -> Counter[str]:
        """How often each photo was encoded since the beginning, by its name then."""
        lines = self._log.read_text().splitlines() if self._log.exists() else []
        return Counter(str(Path(line).relative_to(self.folder)) for line in lines)

    def moved_encoded(self) -> int:
        """Number of moved photos among those that were encoded."""
        return len(self._moved & self.encoded().keys())

    @contextmanager
    def watched(self) -> Generator[Event]:
        """Watch in another process, which is killed at the end.

        Yields:
            An event that is set after the first pass.
        """
        first_pass = _FORK.Event()
        process = _FORK.Process(target=self._watch, args=(first_pass,))
        process.start()
        try:
            yield first_pass
        finally:
            process.kill()
            process.join()

    def _watch(self, first_pass: Event) -> None:
        use_one_thread()  # a forked process has no other
        decode, log = PhotoEncoder.decode, self._log

        def logged(self: PhotoEncoder, row: int, item: ImageItem, data: Any) -> Prepared:
            with log.open("a") as file:
                file.write(f"{item.path}\n")
            return decode(self, row, item, data)

        PhotoEncoder.decode = logged
        settings = FolderSettings(folders=[self.folder])
        watch = FolderWatch(self.index, settings, on_pass=lambda report: first_pass.set())  # noqa: ARG005
        watch.run(threading.Event())

    def _build(self, out: Path) -> None:
        use_one_thread()
        photos = image_items(self.folder, None)
        build_index(self._checkpoint, out, photos, None, BuildSettings(readers=1))

    def _first_pass(self) -> None:
        use_one_thread()
        report = FolderSync(self.index, FolderSettings(folders=[self.folder])).run()
        assert not report.has_changes, report


def _states(index: Path) -> dict[str, str]:
    """Read the digests of the live photos by their ids; without the network, which takes longer."""
    generation = live_generation(index)
    found: dict[int, tuple[str, str | None]] = {}
    files = [
        generation_folder(index, generation) / "images" / ITEMS,
        changes_database(index, generation, "images"),
    ]
    for file in files:
        with closing(open_to_read(file)) as connection:
            lines = connection.execute("SELECT row, id, file_state FROM items")
            found |= {row: (item_id, state) for row, item_id, state in lines}
    with closing(open_to_read(files[1])) as connection:
        later = dict(connection.execute(f"SELECT row, file_state FROM {FILE_STATES}"))
        for (row,) in connection.execute("SELECT row FROM removed"):
            del found[row]
    states = {item_id: later.get(row, state) for row, (item_id, state) in found.items()}
    return {item_id: str(state).split(" ")[2] for item_id, state in states.items()}


def _difference(index: Path, fresh: Path) -> tuple[float, str | None]:
    use_one_thread()
    worst = 0.0
    with open_index(index) as ours, open_index(fresh) as theirs:
        found, expected = ours.side("images"), theirs.side("images")
        rows = list(found.items.ids())
        if len(rows) != len(dict(rows)) or dict(rows).keys() != dict(expected.items.ids()).keys():
            return worst, f"{len(rows)} items, expected {expected.count}"
        places = dict(expected.items.ids())
        for item_id, row in rows:
            of = places[item_id]
            for mine, built in (
                (found.embedding(row), expected.embedding(of)),
                (found.tokens(row), expected.tokens(of)),
            ):
                if mine.shape != built.shape:
                    return worst, f"{item_id}: tokens {mine.shape}, expected {built.shape}"
                worst = max(worst, float(np.abs(mine - built).max()))
    return worst, None if worst <= _TOLERANCE else f"vectors differ by {worst}"


def _run(function: Callable[..., Any], *arguments: object) -> Any:
    """Call a function in a forked process; this process remains single-threaded."""
    receiver, sender = _FORK.Pipe(duplex=False)
    process = _FORK.Process(target=lambda: sender.send(function(*arguments)))
    process.start()
    sender.close()  # so that a process that dies is noticed
    try:
        return receiver.recv()
    except EOFError:
        raise SystemExit("a step failed by itself") from None
    finally:
        process.join()


def _wait_until(condition: Callable[[], bool], what: str) -> float:
    """Wait for a condition, and return the seconds that it took."""
    started = time.perf_counter()
    while not condition():
        if time.perf_counter() - started > _WAIT_S:
            raise SystemExit(f"expected {what} within {_WAIT_S:g} s")
        time.sleep(0.05)
    return time.perf_counter() - started


def measure(photos: int, of_each_kind: int, kills: int, seed: int, *, serve: bool) -> Figures:
    """Measure, see the docstring of the module.

    Args:
        photos: Number of photos.
        of_each_kind: Number of photos that are added, changed, moved and deleted.
        kills: Number of kills.
        seed: Seed of the changes and of the moments of the kills.
        serve: Whether to ask a running service, too.
    """
    figures = Figures()
    draw = random.Random(seed)
    with tempfile.TemporaryDirectory() as home:
        followed = FollowedFolder(Path(home), photos, of_each_kind)
        with (
            ServiceProcess(followed.index) if serve else nullcontext() as service,
            followed.watched() as first_pass,
        ):
            assert first_pass.wait(_WAIT_S)
            started = time.perf_counter()
            followed.change(seed)
            if service is not None:
                expected = f"new-{of_each_kind - 1}.png"
                _wait_until(lambda: expected in _listed(service), "a service that follows")
                figures.service_s = time.perf_counter() - started
            _wait_until(lambda: followed.has_taken_over, "an index that follows")
            figures.take_over_s = time.perf_counter() - started
        figures.encoded = followed.encoded().total()
        figures.moved_encoded = followed.moved_encoded()
        _note(figures, followed)
        figures.same = 0  # of the kills
        for number in range(kills):
            followed.begin()
            with followed.watched() as first_pass:
                assert first_pass.wait(_WAIT_S)
                started = time.perf_counter()
                followed.change(seed + number)
                rest = draw.uniform(0, figures.take_over_s) - (time.perf_counter() - started)
                time.sleep(max(0.0, rest))
            with followed.watched():
                _wait_until(lambda: followed.has_taken_over, "an index that follows")
            figures.kills += 1
            figures.moved_encoded += followed.moved_encoded()
            figures.encoded_twice += sum(count - 1 for count in followed.encoded().values())
            _note(figures, followed)
    return figures


def _note(figures: Figures, followed: FollowedFolder) -> None:
    """Compare the index with a fresh build."""
    worst, fault = followed.compare()
    figures.worst_difference = max(figures.worst_difference, worst)
    if fault is None:
        figures.same += 1
    else:
        figures.faults.append(fault)


def _listed(service: ServiceProcess) -> str:
    """Return the newest items that a service lists."""
    status, answer = service.ask("GET", "/v1/items/images?limit=100")
    assert status == 200, answer
    return answer.decode()


def main() -> None:
    """Run the measurements, and print a table or JSON."""
    parser = figures_parser(__doc__, f"{_QUICK_KILLS} kill, {_QUICK_PHOTOS} photos, no service")
    parser.add_argument("--kills", type=int, default=_KILLS, help="processes to kill")
    parser.add_argument("--seed", type=int, default=0, help="seed of the changes and the kills")
    options = parser.parse_args()
    quick = _QUICK_PHOTOS, _QUICK_OF_EACH_KIND, _QUICK_KILLS
    sizes = quick if options.quick else (_PHOTOS, _OF_EACH_KIND, options.kills)
    figures = measure(*sizes, options.seed, serve=not options.quick)
    print_figures(vars(figures), as_json=options.json)


if __name__ == "__main__":
    main()

"""Kills index builds at random moments, resumes them, and compares the results.

    python -m benchmarks.index.kill_resume --kills 200 [--json] [--quick]

A round begins with an empty folder, or with an index that already has a generation. A process
builds there, is killed with SIGKILL after a random share of the time of a whole build, is started
again with --resume and killed again, until a build completes. Another process opens and searches
the index throughout. Rounds are repeated until the number of kills is reached.

kills         builds that were killed
identical     kills after which the resumed build produced the same index, byte by byte in every
              file, as an uninterrupted build
broken_reads  searches with another answer than that of the previous generation, or of the new one
              once it was live (or, in an empty folder, another error than a missing index)
reads         searches
builds        completed builds, one per round
killed_while  phases in which builds were killed

The builds are forked from one process that has imported everything, because imports would take most
of the time.
"""

from __future__ import annotations

import multiprocessing
import random
import shutil
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from multiprocessing.connection import Connection
from multiprocessing.synchronize import Event
from pathlib import Path
from typing import Any

from PIL import Image

from aladin_index.building.builder import build_index
from aladin_index.encode.source_items import ImageItem, TextItem
from aladin_index.format.layout import (
    BUILD,
    CURRENT,
    NEW_GENERATION,
    generation_folder,
    live_generation,
)
from aladin_index.generations.reader import open_index
from aladin_index.search.options import SearchOptions
from aladin_index.search.query import Term
from aladin_index.search.searcher import TwoStageSearcher
from aladin_index.settings import BuildSettings
from aladin_network.errors import AladinError, IndexNotReadyError
from aladin_network.inference import encode_texts
from benchmarks.lib.measuring import use_one_thread
from benchmarks.lib.output import figures_parser, print_figures
from benchmarks.lib.small_collection import (
    folder_content,
    make_texts,
    save_small_network,
    write_photos,
)

_QUICK_KILLS = 2
_PHOTOS, _QUICK_PHOTOS = 96, 32  # and half as many texts
_SETTINGS = BuildSettings(
    ann="HNSW16,Flat", token_dtype="4bit", shard_items=16, batch_size=8, readers=2
)
_QUERY = "a red dog runs by the sea"
_FORK = multiprocessing.get_context("fork")

# The IDs and scores that a search found.
Answer = list[tuple[str, float]]


@dataclass(frozen=True, kw_only=True)
class Case:
    """A build to be killed.

    Attributes:
        start: Previous content of the folder, or None if it is empty.
        unbroken: Index of a build that was not interrupted.
        answers: Answers of the query by generation.
    """

    start: Path | None
    unbroken: Path
    answers: dict[int, Answer]

    @property
    def generation(self) -> int:
        """Number of the generation to build."""
        return max(self.answers)


@dataclass
class Figures:
    """Counts of the measurement; see the docstring of the module."""

    kills: int = 0
    identical: int = 0
    broken_reads: int = 0
    reads: int = 0
    builds: int = 0
    killed_while: Counter[str] = field(default_factory=Counter[str])
    breaks: list[str] = field(default_factory=list[str])


class KilledBuilds:
    """Builds of one small collection, killed and resumed in a temporary folder."""

    def __init__(self, folder: Path, photos: int, seed: int) -> None:
        """Create the collection, and the indexes of uninterrupted builds."""
        self._folder = folder
        self._random = random.Random(seed)
        self._checkpoint = folder / "checkpoint"
        # Forked processes find what these import, encoders and decoders: the times of kills are a
        # build's own. With one thread, torch starts none, which a fork would lack.
        use_one_thread()
        save_small_network(self._checkpoint)
        Image.init()
        self._images = write_photos(folder / "photos", photos)
        self._texts = make_texts(photos // 2)
        old = folder / "old"
        _run(self._build, old, self._images[: photos // 3], self._texts, False)
        self.cases = [self._case("new", None), self._case("rebuilt", old)]

    def round(self, case: Case, figures: Figures, most: int) -> None:
        """Kill a build up to `most` times, resume it to its end and compare."""
        index = self._folder / "index"
        # The duration of a build depends on the current load of the machine.
        seconds = self._build_unbroken(index, case.start)
        _begin(index, case.start)
        stop, (receiver, sender) = _FORK.Event(), _FORK.Pipe(duplex=False)
        reader = _FORK.Process(target=_read, args=(index, case, stop, sender))
        reader.start()
        sender.close()  # so that a reader that dies is noticed
        kills = 0
        try:
            while kills < most and self._killed(index, seconds, kills > 0):
                kills += 1
                figures.killed_while[_stage(index, case)] += 1
            if kills == most:
                _run(self._build, index, self._images, self._texts, True)
        finally:
            stop.set()
            reads, breaks = receiver.recv()
            reader.join()
        figures.builds += 1
        figures.kills += kills
        figures.reads += reads
        figures.broken_reads += len(breaks)
        figures.breaks += breaks
        if folder_content(index) == folder_content(case.unbroken):
            figures.identical += kills

    def _killed(self, index: Path, seconds: float, resume: bool) -> bool:
        """Build until the end, or until a random moment; return whether the build was killed."""
        arguments = (index, self._images, self._texts, resume)
        process = _FORK.Process(target=self._build, args=arguments)
        process.start()
        process.join(self._random.uniform(0, seconds))
        process.kill()
        process.join()
        if process.exitcode not in (0, -9):
            raise SystemExit("a build failed by itself")
        return process.exitcode == -9

    def _build(
        self, out: Path, images: list[ImageItem], texts: list[TextItem], resume: bool
    ) -> None:
        use_one_thread()  # a forked process has no other
        settings = replace(_SETTINGS, resume=resume)
        build_index(self._checkpoint, out, images, texts, settings)

    def _case(self, name: str, start: Path | None) -> Case:
        unbroken, answers = self._folder / name, dict[int, Answer]()
        if start is not None:
            answers[live_generation(start)] = _run(_answer, start)
        self._build_unbroken(unbroken, start)
        answers[live_generation(unbroken)] = _run(_answer, unbroken)
        return Case(start=start, unbroken=unbroken, answers=answers)

    def _build_unbroken(self, index: Path, start: Path | None) -> float:
        """Build without a kill, and return the seconds that it took."""
        _begin(index, start)
        started = time.perf_counter()
        _run(self._build, index, self._images, self._texts, False)
        return time.perf_counter() - started


def _begin(index: Path, start: Path | None) -> None:
    """Replace an index by a copy of `start`, or by nothing."""
    shutil.rmtree(index, ignore_errors=True)
    if start is not None:
        shutil.copytree(start, index)


def _read(index: Path, case: Case, stop: Event, sender: Connection) -> None:
    """Read an index in a loop until `stop`; send the number of reads and the failures."""
    reads, breaks = 0, list[str]()
    newest = 0 if case.start is None else min(case.answers)
    while not stop.is_set():
        reads += 1
        try:
            generation, answer = _search(index)
            if generation < newest:
                breaks.append(f"generation {generation} after {newest}")
            elif answer != case.answers.get(generation):
                breaks.append(f"generation {generation}: another answer")
            newest = max(newest, generation)
        except IndexNotReadyError as error:
            if newest:
                breaks.append(str(error))
        except (AladinError, OSError, ValueError) as error:
            breaks.append(f"{type(error).__name__}: {error}")
        time.sleep(0.002)  # leaves the builds a share of the processors
    sender.send((reads, breaks))


def _search(index: Path) -> tuple[int, Answer]:
    """Open the live generation and search it."""
    use_one_thread()  # a forked process has no other
    with open_index(index) as opened:
        query = encode_texts(opened.checkpoint.model, [_QUERY])
        result = TwoStageSearcher(opened).search(Term(query, "text"), "images", SearchOptions(k=10))
        return opened.generation, [(hit.id, hit.score) for hit in result.hits]


def _answer(index: Path) -> Answer:
    return _search(index)[1]


def _stage(index: Path, case: Case) -> str:
    """Describe what a build was doing when it was killed, judging by the files it left."""
    if (index / CURRENT).exists() and live_generation(index) == case.generation:
        return "cleaning up"
    if generation_folder(index, case.generation).exists():
        return "going live"
    if (index / NEW_GENERATION).exists():
        return "writing the generation"
    return "encoding" if (index / BUILD).exists() else "listing"


def _run(function: Callable[..., Any], *arguments: object) -> Any:
    """Call a function in a forked process; this process remains single-threaded."""
    receiver, sender = _FORK.Pipe(duplex=False)
    process = _FORK.Process(target=lambda: sender.send(function(*arguments)))
    process.start()
    sender.close()  # so that a process that dies is noticed
    try:
        return receiver.recv()
    except EOFError:
        raise SystemExit("a build failed by itself") from None
    finally:
        process.join()


def measure(kills: int, photos: int, seed: int) -> Figures:
    """Kill builds, round after round, until the number of kills is reached.

    Args:
        kills: Requested number of kills.
        photos: Number of photos in each build; half as many texts are added.
        seed: Seed of the random moments.
    """
    figures = Figures()
    with tempfile.TemporaryDirectory() as folder:
        builds = KilledBuilds(Path(folder), photos, seed)
        while figures.kills < kills:
            case = builds.cases[figures.builds % len(builds.cases)]
            builds.round(case, figures, kills - figures.kills)
    return figures


def main() -> None:
    """Run the measurements, and print a table or JSON."""
    parser = figures_parser(__doc__, f"{_QUICK_KILLS} kills of a smaller build")
    parser.add_argument("--kills", type=int, default=200, help="builds to kill")
    parser.add_argument("--seed", type=int, default=0, help="seed of the times of the kills")
    options = parser.parse_args()
    kills, photos = (_QUICK_KILLS, _QUICK_PHOTOS) if options.quick else (options.kills, _PHOTOS)
    figures = measure(kills, photos, options.seed)
    data = vars(figures) | {"killed_while": dict(figures.killed_while)}
    print_figures(data, as_json=options.json)


if __name__ == "__main__":
    main()

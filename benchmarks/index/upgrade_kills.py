"""Kills upgrades of a served index to another model while clients search and change it.

    python -m benchmarks.index.upgrade_kills [--photos 10000] [--kills 50] [--queries 50000]
        [--quick] [--json]

A service with two worker processes serves an index of random photos by a small network. Clients
search it with texts, photos and items without a pause; another one adds photos and deletes items.
Meanwhile `upgrade_index` gives the index another network, in a process that is killed with SIGKILL
at random moments and started again: three fifths of the kills while it encodes, the others from the
moment when all is encoded to the switch, and after it. The kills are spread over the queries.

Every hit is checked: its cosine has to be that of the network that the answer names for it, or over
the bridge; an answer that names none has to be of one network alone.

queries         searches; answered during an upgrade (`by_both`: by both networks)
failed          searches with another status than 200; must be 0
unsaid          answers with a hit that another network scored than the answer says; must be 0
kills           killed upgrades, and what they were doing
acknowledged    additions and deletions that the service acknowledged
lost            of these, those that the index does not show at the end; must be 0
old_encodings   items of the new generation whose embedding is not the new network's; must be 0
deleted_found   answers with an item whose deletion was acknowledged before the query; must be 0
search_ms       median, 99th percentile and maximum of the time of a search
"""

from __future__ import annotations

import multiprocessing
import random
import shutil
import tempfile
import time
import urllib.parse
from collections import Counter
from collections.abc import Sequence
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

import numpy as np

from aladin_index.format.layout import NEW_GENERATION, PUBLISHING, live_generation
from aladin_index.format.upgrade_methods import read_rest_methods
from aladin_index.format.upgrade_plan import read_plan, upgrade_progress
from aladin_index.generations.reader import open_index
from aladin_index.upgrade.encoding import EncodingSettings
from aladin_index.upgrade.run import UpgradeSettings, upgrade_index
from aladin_network.errors import AladinError
from benchmarks.index.upgrade_traffic import Counts, Oracle, Traffic
from benchmarks.index.upgrade_world import World, make_world
from benchmarks.lib.measuring import use_one_thread
from benchmarks.lib.output import figures_parser, print_figures
from benchmarks.lib.service_process import ServiceProcess

_FORK = multiprocessing.get_context("fork")
_SETTINGS = {"ALADIN_QUERY_PRECISION": "float32"}
_NEAR = 1e-4
# Share of the kills that come while items are encoded.
_EARLY_SHARE = 0.6
_EARLY = ("starting", "encoding the sample", "encoding")
_LOOK_S = 0.005


class Upgrades:
    """Upgrades in processes of their own, one after another, that can be killed.

    Attributes:
        killed_while: What upgrades were doing when they were killed.
        finished: Number of upgrades that came to their end.
    """

    def __init__(
        self, index: Path, checkpoints: Sequence[Path], encoding: EncodingSettings, seed: int
    ) -> None:
        """Start nothing yet.

        Args:
            index: Folder of the index.
            checkpoints: Networks of the index one after another, its own first.
            encoding: How items are encoded.
            seed: Seed of the moments of the kills.
        """
        self.killed_while: Counter[str] = Counter()
        self.finished = 0
        self._index = index
        self._checkpoints = checkpoints
        self._encoding = encoding
        self._random = random.Random(seed)

    def time(self) -> tuple[float, float]:
        """Run an upgrade to its end; return the seconds until it writes its generation, and all."""
        process, began_s, encoded_s = self._start(), time.monotonic(), 0.0
        while process.is_alive():
            if not encoded_s and self._stage() not in _EARLY:
                encoded_s = time.monotonic() - began_s
            time.sleep(_LOOK_S)
        self._end(process)
        return encoded_s, time.monotonic() - began_s

    def kill_early(self, most_s: float) -> None:
        """Run an upgrade and kill it at a random moment of at most so many seconds."""
        process = self._start()
        process.join(self._random.uniform(0.02, most_s))
        self._kill(process)

    def kill_late(self, most_s: float) -> None:
        """Run an upgrade and kill it at a random moment after it began to write its generation."""
        process = self._start()
        while process.is_alive() and self._stage() in _EARLY:
            time.sleep(_LOOK_S)
        process.join(self._random.uniform(0, most_s))
        self._kill(process)

    def _kill(self, process: BaseProcess) -> None:
        stage = self._stage()
        process.kill()
        process.join()
        if process.exitcode == -9:
            self.killed_while[stage] += 1
        else:
            self._end(process)

    def _end(self, process: BaseProcess) -> None:
        process.join()
        if process.exitcode != 0:
            raise SystemExit("an upgrade failed by itself")
        self.finished += 1
        if self.finished + 1 == len(self._checkpoints):
            raise SystemExit("no networks are left: ask for fewer kills, or for more photos")

    def _start(self) -> BaseProcess:
        process = _FORK.Process(target=self._upgrade)
        process.start()
        return process

    def _upgrade(self) -> None:
        use_one_thread()  # a forked process has no other
        settings = UpgradeSettings(resume=True, encoding=self._encoding)
        upgrade_index(self._index, self._checkpoints[self.finished + 1], settings)

    def _stage(self) -> str:
        """Describe what an upgrade is doing, judging by its files."""
        root = self._index
        try:
            progress = upgrade_progress(root, live_generation(root))
            if progress is None:
                return "starting" if read_plan(root) is None else "cleaning up"
            if (root / PUBLISHING).exists():
                return "going live"
            if (root / NEW_GENERATION).exists():
                return "writing the generation"
            return "encoding the sample" if read_rest_methods(root) is None else "encoding"
        except AladinError:  # a file was moved while it was looked for
            return "cleaning up"


def measure(photos: int, kills: int, queries: int, encoding: EncodingSettings) -> dict[str, Any]:
    """Upgrade a served index under kills.

    Args:
        photos: Number of photos of the index.
        kills: Number of upgrades to kill.
        queries: Number of searches, over which the kills are spread.
        encoding: How items are encoded.
    """
    use_one_thread()
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        world = make_world(folder, photos)
        copy = folder / "copy"
        shutil.copytree(world.index, copy)
        encode_s, whole_s = Upgrades(copy, world.checkpoints, encoding, 0).time()
        early = max(1, round(_EARLY_SHARE * kills))
        upgrades = Upgrades(world.index, world.checkpoints, encoding, 1)
        done, ended = _FORK.Value("q", 0), _FORK.Event()
        with ServiceProcess(world.index, ["--workers", "2"], _SETTINGS) as service:
            oracle = Oracle(world.index, world.networks)
            traffic = Traffic(
                service.port,
                oracle,
                world.texts,
                world.photos,
                world.new,
                world.built,
                queries,
                done,
                ended,
            )
            receiver, sender = _FORK.Pipe(duplex=False)
            clients = _FORK.Process(target=_send_counts, args=(traffic, sender))
            clients.start()
            sender.close()  # so that clients that die are noticed
            try:
                for number in range(kills):
                    while done.value < queries * number / kills and clients.is_alive():
                        time.sleep(_LOOK_S)
                    if number < early:
                        upgrades.kill_early(0.1 + 2 * encode_s / early)
                    else:
                        upgrades.kill_late(whole_s - encode_s)
                upgrades.time()
            finally:
                ended.set()
            counts: Counts = receiver.recv()
            clients.join()
            lost = _lost(service, counts)
        return _figures(world, upgrades, counts, lost)


def _send_counts(traffic: Traffic, sender: Connection) -> None:
    sender.send(traffic.run())


def _lost(service: ServiceProcess, counts: Counts) -> list[str]:
    """Return acknowledged changes that the index does not show."""
    lost: list[str] = []
    for ids, expected in ((counts.added, 200), (counts.deleted, 404)):
        for item_id in ids:
            path = f"/v1/items/images/{urllib.parse.quote(item_id)}"
            if service.ask("GET", path)[0] != expected:
                lost.append(item_id)
    return lost


def _figures(
    world: World, upgrades: Upgrades, counts: Counts, lost: Sequence[str]
) -> dict[str, Any]:
    network = world.networks[upgrades.finished]
    with open_index(world.index) as index:
        side = index.side("images")
        items = list(side.items.ids())
        vectors = side.embeddings([row for _, row in items])
    expected = np.stack([network.photos[item_id] for item_id, _ in items])
    wrong = int((np.abs(vectors - expected).max(axis=1) > _NEAR).sum())
    here = {item_id for item_id, _ in items}
    missing = (set(world.built) | set(counts.added)) - set(counts.deleted) - here
    times = np.array(counts.milliseconds)
    return {
        "queries": counts.queries,
        "by_both": counts.by_both,
        "failed": counts.failed,
        "unsaid": counts.unsaid,
        "deleted_found": counts.deleted_found,
        "kills": upgrades.killed_while.total(),
        "upgrades": upgrades.finished,
        "acknowledged": len(counts.added) + len(counts.deleted),
        "lost": len(lost) + len(missing),
        "old_encodings": wrong,
        "search_ms": [round(float(np.percentile(times, each)), 1) for each in (50, 99, 100)],
        "killed_while": dict(upgrades.killed_while),
        "unexpected": counts.unexpected,
    }


def main() -> None:
    """Run the measurement, and print a table or JSON."""
    parser = figures_parser(__doc__, "300 photos, 4 kills, 300 queries")
    parser.add_argument("--photos", type=int, default=10_000, help="photos of the index")
    parser.add_argument("--kills", type=int, default=50, help="upgrades to kill")
    parser.add_argument("--queries", type=int, default=50_000, help="searches meanwhile")
    options = parser.parse_args()
    if options.quick:
        small = EncodingSettings(batch_size=16, part_items=32, sample_items=100)
        figures = measure(300, 4, 300, small)
    else:
        encoding = EncodingSettings(batch_size=64, part_items=256)
        figures = measure(options.photos, options.kills, options.queries, encoding)
    print_figures(figures, as_json=options.json)


if __name__ == "__main__":
    main()

"""Encodes photos on one Ray node, and on two with as many cores each, on this machine.

    python -m benchmarks.index.ray_encode [--photos 480] [--cpus 1] [--json]

Each node has its own cores, so this requires an idle machine with twice --cpus cores; other load
slows the two nodes more than the one.

alone       this process, on the cores of the first node
one node    one worker on one node
two nodes   one worker on each of two nodes
one killed  the same, with one node killed when a third of the photos are encoded

total_s     seconds of the whole build; with nodes including the start of their workers
work_s      seconds that all photos would take at the rate reached once all workers had started
ratio       work_s divided by that of one node
identical   whether the index equals that of this process, byte by byte in every file
lost        workers that were lost
"""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
import time
from contextlib import ExitStack
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from aladin_index.build.builder import build_index
from aladin_index.cluster.pool import WorkerSettings
from aladin_index.cluster.ray_encoding import connected, ray_encoding
from aladin_index.encode.source_items import ImageItem
from aladin_index.settings import BuildSettings
from aladin_network.checkpoint import save_checkpoint
from aladin_network.config import (
    AlignmentHeadConfig,
    ImageEncoderConfig,
    ImagePreprocessing,
    MatchingHeadConfig,
    ModelConfig,
    TextEncoderConfig,
    TowerConfig,
    TrunkConfig,
)
from aladin_network.graphs.threads import set_compute_threads
from aladin_network.model import AladinModel
from aladin_network.types import NullProgress
from benchmarks.lib.output import figures_parser, print_json, print_rows
from benchmarks.lib.ray_nodes import RayNodes
from benchmarks.lib.small_collection import folder_content, random_model, write_photos


@dataclass(frozen=True, kw_only=True)
class Row:
    """Result of one build; see the docstring of the module."""

    name: str
    total_s: float
    work_s: float | None
    ratio: float | None
    identical: bool
    lost: int


class Clock(NullProgress):
    """Records when photos were encoded; kills a node on request."""

    def __init__(self, photos: int, workers: int, nodes: RayNodes | None = None) -> None:
        self._photos = photos
        self._workers = workers
        self._doomed = nodes
        self._counts = False
        self._done = 0
        self._all_there: tuple[float, int] | None = None
        self._last_s = 0.0
        self.lost = 0

    def start(self, total: int | None, unit: str) -> None:  # noqa: ARG002
        self._counts = unit == "photos"
        if self._counts and not self._workers:
            self._all_there = time.perf_counter(), 0

    def advance(self, count: int = 1) -> None:
        if self._counts:
            self._done += count
            self._last_s = time.perf_counter()
            if self._doomed is not None and self._done >= self._photos / 3:
                self._doomed.kill(1)
                self._doomed = None

    def note(self, **numbers: float | str) -> None:
        self.lost = int(numbers.get("lost", self.lost))
        if self._all_there is None and numbers.get("workers") == self._workers:
            self._all_there = time.perf_counter(), self._done

    def work_s(self) -> float:
        """Return the time for all photos at the rate reached once all workers had started."""
        assert self._all_there is not None  # there were more photos than a worker's start takes
        since_s, done = self._all_there
        return (self._last_s - since_s) * self._photos / (self._done - done)


def main() -> None:
    """Run the measurements, and print a table or JSON."""
    parser = figures_parser(__doc__)
    parser.add_argument("--photos", type=int, default=480, help="photos to encode")
    parser.add_argument("--cpus", type=int, default=1, help="cores of each node")
    given = parser.parse_args()
    rows = measure(given.photos, given.cpus)
    if given.json:
        print_json([asdict(row) for row in rows])
        return
    print_rows(
        ["", "total_s", "work_s", "ratio", "identical", "lost"],
        [
            [
                row.name,
                f"{row.total_s:.1f}",
                "" if row.work_s is None else f"{row.work_s:.1f}",
                "" if row.ratio is None else f"{row.ratio:.2f}",
                "yes" if row.identical else "NO",
                row.lost,
            ]
            for row in rows
        ],
    )


def measure(photos: int, cpus: int) -> list[Row]:
    """Build four times, and compare."""
    set_compute_threads(cpus)
    folder = Path(tempfile.mkdtemp(prefix="aladin-ray-"))
    try:
        save_checkpoint(folder / "model", medium_model())
        items = write_photos(folder / "photos", photos)
        settings = BuildSettings(ann="exact", shard_items=8, batch_size=8, readers=cpus)
        cores = os.sched_getaffinity(0)
        os.sched_setaffinity(0, sorted(cores)[:cpus])
        rows = [_build("alone", folder, items, settings, 0, cpus)]
        os.sched_setaffinity(0, cores)
        rows.append(_build("one node", folder, items, settings, 1, cpus))
        rows.append(_build("two nodes", folder, items, settings, 2, cpus))
        rows.append(_build("one killed", folder, items, settings, 2, cpus, kill=True))
        one_s = rows[1].work_s
        return [
            row if row.work_s is None or one_s is None else replace(row, ratio=row.work_s / one_s)
            for row in rows
        ]
    finally:
        shutil.rmtree(folder)


def _build(
    name: str,
    folder: Path,
    items: list[ImageItem],
    settings: BuildSettings,
    nodes: int,
    cpus: int,
    *,
    kill: bool = False,
) -> Row:
    out = folder / name.replace(" ", "-")
    print(f"{name} ...", file=sys.stderr)
    with ExitStack() as stack:
        encoding, cluster = None, None
        if nodes:
            cluster = stack.enter_context(RayNodes([cpus] * nodes, pinned=True))
            ray = stack.enter_context(connected(cluster.address))
            encoding = stack.enter_context(
                ray_encoding(ray, folder / "model", settings, WorkerSettings(cpus=cpus))
            )
        clock = Clock(len(items), nodes, cluster if kill else None)
        began_s = time.perf_counter()
        build_index(folder / "model", out, items, None, settings, clock, None, encoding)
        total_s = time.perf_counter() - began_s
    return Row(
        name=name,
        total_s=total_s,
        work_s=None if kill else clock.work_s(),
        ratio=None,
        identical=folder_content(out) == folder_content(folder / "alone"),
        lost=clock.lost,
    )


def medium_model() -> AladinModel:
    """Make an untrained network that takes some hundredths of a second per photo."""
    layers = {
        "hidden_size": 384,
        "num_hidden_layers": 6,
        "num_attention_heads": 6,
        "intermediate_size": 1536,
    }
    trunk = TrunkConfig(width=384, layers=2, heads=6, feedforward=1536)
    config = ModelConfig(
        image_encoder=ImageEncoderConfig(
            architecture={"model_type": "vit", "image_size": 224, "patch_size": 16, **layers},
            preprocessing=ImagePreprocessing(height_px=224, width_px=224),
        ),
        text_encoder=TextEncoderConfig(
            architecture={"model_type": "bert", "max_position_embeddings": 64, **layers},
            max_tokens=32,
        ),
        image_tower=TowerConfig(trunk=trunk),
        text_tower=TowerConfig(trunk=trunk),
        alignment=AlignmentHeadConfig(dim=128),
        matching=MatchingHeadConfig(layers=1, heads=4, dim=256),
    )
    return random_model(config, ["two dogs run on the grass"])


if __name__ == "__main__":
    main()

"""Builds that die by SIGKILL, each in a process of its own, and are then resumed.

    python -m tests.index.building.killed_builds CHECKPOINT PHOTOS OUT

Writes ``OUT/PLACE-N`` for each place to die, and prints the names of those.
"""

from __future__ import annotations

import signal
import sys
from pathlib import Path

from aladin_index.building.builder import build_index
from aladin_index.encode.source_items import ImageItem, TextItem
from aladin_index.settings import BuildSettings
from aladin_network.graphs.threads import set_compute_threads
from aladin_network.types import NullProgress
from tests.index.deaths import Death, arm, in_a_process

DEATHS = [
    Death("fsync", 2),  # while the model is copied
    Death("replace", 1),  # before there is a plan
    Death("advance", 2),  # while the texts are listed
    Death("advance", 5),  # in the middle of the second shard
    Death("rename", 5),  # before the first shard of the texts is whole
    Death("write_items", 2),  # while the generation's files are written
    Death("replace", 4),  # before the manifest
    Death("replace", 5),  # before the generation's number is written down
    Death("rename", 7),  # before it is in its place
    Death("replace", 6),  # before it is live
    Death("rename", 8),  # before the build's work is thrown away
    Death("rmtree", 32),  # while it is
    Death("rmtree", 33),  # before the list of the items is thrown away
]


def build(checkpoint: Path, photos: Path, out: Path, resume: bool, death: Death | None) -> None:
    """Build in this process, which may have to die."""
    set_compute_threads(1)
    images = [
        ImageItem(
            id=path.stem, path=path, uri=path.name, metadata={"name": path.stem, "a": 1, "b": [2]}
        )
        for path in sorted(photos.iterdir())
    ]
    texts = [TextItem(id=f"t{number}", text="two dogs run " * (number + 1)) for number in range(5)]
    progress = NullProgress()
    if death is not None:
        arm(death, progress)
    settings = BuildSettings(shard_items=4, batch_size=2, token_dtype="4bit", resume=resume)
    build_index(checkpoint, out, images, texts, settings, progress)


def main() -> None:
    """Die at each place and resume."""
    checkpoint, photos, out = (Path(argument) for argument in sys.argv[1:])
    for death in DEATHS:
        broken = out / f"{death.place}-{death.at}"
        killed = in_a_process(lambda: build(checkpoint, photos, broken, False, death))  # noqa: B023
        assert killed == signal.SIGKILL, death
        assert in_a_process(lambda: build(checkpoint, photos, broken, True, None)) == 0  # noqa: B023
        sys.stdout.write(f"{broken.name}\n")


if __name__ == "__main__":
    main()

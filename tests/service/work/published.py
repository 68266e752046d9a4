"""Generations that are published anew, and time that passes when a test says so."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path

from aladin_index.format.disk import only_builder
from aladin_index.format.layout import NEW_GENERATION, generation_folder
from aladin_index.format.manifest import read_manifest, write_manifest
from aladin_index.generations.writer import publish_generation


class Clock:
    """Stands for the module `time`."""

    now_s = 1000.0

    def monotonic(self) -> float:
        return self.now_s


def publish_copy(index: Path, number: int, damage: str | None = None) -> None:
    """Publish generation 1 again under another number; `damage` names a file to be zeros then."""
    with only_builder(index):
        folder = index / NEW_GENERATION
        shutil.copytree(generation_folder(index, 1), folder)
        write_manifest(folder, replace(read_manifest(folder), generation=number))
        if damage is not None:
            content = (folder / damage).read_bytes()
            (folder / damage).write_bytes(content[:128] + bytes(len(content) - 128))
        publish_generation(index, folder, number)

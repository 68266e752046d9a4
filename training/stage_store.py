"""Finished stages that several runs share: the same start is trained once."""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import shutil
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

from aladin.atomic import atomic_folder
from aladin.strict_config import dump_config
from training.recipe import Recipe


class StageStore:
    """Folders of finished stages by all that determines them; safe between processes."""

    def __init__(self, root: Path, recipe: Recipe, data_digest: str) -> None:
        """Open the store for one run.

        Args:
            root: folder of the store.
            recipe: of the run.
            data_digest: of its training data.
        """
        self._root = root
        self._recipe = recipe
        self._data_digest = data_digest

    def identity(self, number: int) -> str:
        """Identify a stage by everything that its weights depend on.

        Args:
            number: of the stage in the recipe; the stages after it make no difference.
        """
        text = stage_history(self._recipe, number) + self._data_digest
        return hashlib.sha256(text.encode()).hexdigest()[:32]

    @contextmanager
    def claim(self, number: int) -> Generator[None]:
        """Keep other processes from training the same stage meanwhile; wait for one that does."""
        self._root.mkdir(parents=True, exist_ok=True)
        # The system lets go of the lock when its process ends, however it ends.
        with (self._root / f"{self.identity(number)}.lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            yield

    def take(self, number: int, folder: Path) -> bool:
        """Copy a finished stage into a run.

        Args:
            number: of the stage.
            folder: of the stage in the run.

        Returns:
            Whether the store has it.
        """
        stored = self._root / self.identity(number)
        if not stored.exists():
            return False
        with atomic_folder(folder) as partial:
            link_tree(stored, partial)
        return True

    def give(self, number: int, folder: Path) -> None:
        """Copy a stage that has just been finished into the store.

        Args:
            number: of the stage.
            folder: of the stage in the run.
        """
        with atomic_folder(self._root / self.identity(number)) as partial:
            link_tree(folder, partial)


def stage_history(recipe: Recipe, number: int) -> str:
    """Write down all of a recipe that a stage's weights depend on; equal texts, equal stages.

    Args:
        recipe: of the stage.
        number: of the stage in it.
    """
    content = dump_config(recipe)
    for key in ("name", "final"):
        del content[key]
    content["stage"] = content["stage"][: number + 1]
    return json.dumps(content, sort_keys=True)


def link_tree(source: Path, target: Path) -> None:
    """Copy a folder of files that nobody changes any more, by hard links where that works.

    Args:
        source: folder to copy.
        target: an existing, empty folder.
    """
    shutil.copytree(source, target, dirs_exist_ok=True, copy_function=_link)


def _link(source: str, target: str) -> None:
    try:
        os.link(source, target)
    except OSError:  # another disk, or one without links
        shutil.copy2(source, target)

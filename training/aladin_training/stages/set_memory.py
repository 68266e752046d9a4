"""Data sets that several runs of one process read.

The runs of a comparison mostly read the same photos and captions. Looking at all files and opening
the caches of frozen encoders takes longer than many a short run.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TypeVar, cast

from aladin_network.model import AladinModel
from aladin_network.types import Progress
from aladin_training.batches.dataset import PairDataset
from aladin_training.batches.inputs import Caches, image_digest, text_digest
from aladin_training.config.recipe import Recipe
from aladin_training.data import Record
from aladin_training.data.regions import RegionStore

T = TypeVar("T")

# Those of two comparisons at most: a set may hold its features in the memory of a GPU.
_MOST = 12


class SetMemory:
    """Keeps what was read for one run for the next one; files must not change meanwhile."""

    def __init__(self) -> None:
        """Remember nothing yet."""
        self._known: dict[str, object] = {}

    def recall(self, key: str, make: Callable[[], T]) -> T:
        """Return what is known by a key, or make it."""
        if key not in self._known:
            made = make()
            while len(self._known) >= _MOST:
                del self._known[next(iter(self._known))]  # the oldest
            self._known[key] = made
        return cast(T, self._known[key])

    def pairs(
        self,
        part: str,
        records: Sequence[Record],
        recipe: Recipe,
        model: AladinModel,
        views: Sequence[str],
        progress: Progress,
        regions: RegionStore | None = None,
        short_captions: bool = False,
    ) -> PairDataset:
        """Return a part of a recipe's data for networks whose encoders are equal."""
        encoders = image_digest(model.image.encoder), text_digest(model.text.encoder)
        key = f"{part}:{recipe.data!r}:{recipe.precision}:{encoders}:{views}:{short_captions}"
        key += f":{recipe.cached_layers}"
        return self.recall(
            key,
            lambda: PairDataset.prepare(
                records,
                model,
                Caches(
                    Path(recipe.data.cache).expanduser(), recipe.precision, recipe.cached_layers
                ),
                views,
                progress,
                regions,
                short_captions,
            ),
        )

"""Photos that a recipe keeps apart: to choose on, and the fold of a cross-validation to report on.

What is chosen on a split looks better there than on unseen photos. With a selection split, weights,
fusion and rates are chosen on a part of the training photos, and the validation split only reports.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol, TypeVar

from aladin_network.errors import InputError
from aladin_training.data import Record, read_records

# Name of the split in commands, of a checkpoint whose recipe keeps photos apart.
SELECTION = "selection"


class _Identified(Protocol):
    @property
    def id(self) -> str: ...


R = TypeVar("R", bound=_Identified)


@dataclass(frozen=True)
class SelectionSplit:
    """The selection split of a recipe: a share of the training split, or of all photos if None."""

    train_split: str | None
    share: float

    def holds(self, photo_id: str) -> bool:
        """Tell by a digest of its id, which no other photo changes, if a photo is kept apart."""
        return int.from_bytes(_digest(photo_id)[:8], "big") < self.share * 2**64

    def divide(self, records: Iterable[R]) -> tuple[list[R], list[R]]:
        """Divide the records of the training split into those to train on and those kept apart."""
        trained: list[R] = []
        kept: list[R] = []
        for record in records:
            (kept if self.holds(record.id) else trained).append(record)
        return trained, kept


@dataclass(frozen=True)
class Folds:
    """The folds of a recipe: photos of the training and validation splits, dealt into equal parts.

    Fold `held` takes the place of the validation split, all others that of the training split.
    """

    train_split: str
    validation_split: str
    count: int
    held: int

    def divide(self, records: Sequence[R]) -> tuple[list[R], list[R]]:
        """Divide the records of both splits, in their order, into those to train on and the fold.

        Photos are dealt in the order of a digest of their ids, so that parts differ by one photo at
        most, and nothing of the order of the data set is in them.
        """
        dealt = sorted(records, key=lambda each: _digest(f"fold:{each.id}"))
        held = {each.id for each in dealt[self.held :: self.count]}
        return (
            [each for each in records if each.id not in held],
            [each for each in records if each.id in held],
        )


def _digest(text: str) -> bytes:
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).digest()


def _data_of(recipe: str) -> dict[str, Any]:
    """Return the data of `Provenance.recipe`, which may be no JSON."""
    try:
        return dict(json.loads(recipe)["data"])
    except (ValueError, KeyError, TypeError):
        return {}


def selection_of(recipe: str) -> SelectionSplit | None:
    """Return the selection split of `Provenance.recipe`, which may be no JSON, or None."""
    data = _data_of(recipe)
    share = data.get("selection", 0)
    return SelectionSplit(data["train_split"], share) if share else None


def folds_of(recipe: str) -> Folds | None:
    """Return the folds of `Provenance.recipe`, which may be no JSON, or None."""
    data = _data_of(recipe)
    if data.get("folds", 1) == 1:
        return None
    return Folds(data["train_split"], data["validation_split"], data["folds"], data["fold"])


def read_part(
    source: Path,
    split: str | None,
    folds: Folds | None,
    *,
    require_captions: bool = True,
    require_photos: bool = True,
) -> list[Record]:
    """Read a split of a data set, or with folds the photos that take its place.

    Raises:
        DataError: If the data set cannot be used, or has no such split.
    """

    def read(name: str | None) -> list[Record]:
        return read_records(
            source, name, require_captions=require_captions, require_photos=require_photos
        )

    if folds is None or split not in (folds.train_split, folds.validation_split):
        return read(split)
    trained, held = folds.divide([*read(folds.train_split), *read(folds.validation_split)])
    return trained if split == folds.train_split else held


def read_split(
    source: Path,
    split: str | None,
    recipe: str,
    *,
    require_captions: bool = True,
    require_photos: bool = True,
) -> list[Record]:
    """Read a split of a data set, as the recipe of a checkpoint has divided it.

    It may be the selection split. Of a recipe with folds, the training and the validation split are
    the photos that take their place.

    Raises:
        InputError: If the recipe's selection split holds none of the photos.
        DataError: If the data set cannot be used, or has no such split.
    """
    selection = selection_of(recipe) if split == SELECTION else None
    records = read_part(
        source,
        split if selection is None else selection.train_split,
        folds_of(recipe),
        require_captions=require_captions,
        require_photos=require_photos,
    )
    if selection is None:
        return records
    _, kept = selection.divide(records)
    if not kept:
        raise InputError(f"{source}: the recipe's selection split holds none of its photos")
    return kept


def read_trained(
    source: Path, split: str | None, recipe: str, *, require_photos: bool = True
) -> list[Record]:
    """Read a split without the photos that a checkpoint's recipe kept apart from training."""
    records = read_split(source, split, recipe, require_photos=require_photos)
    selection = selection_of(recipe)
    if selection is None or selection.train_split != split:
        return records
    return selection.divide(records)[0]

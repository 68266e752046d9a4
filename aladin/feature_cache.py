"""Outputs of frozen encoders on disk: computed once, memory-mapped by training.

    ROOT/ENCODER/            one folder an encoder, by the digest of what shapes its output
      PART.json              keys and token counts; written last, so a part is whole or not there
      PART.states.npy        (tokens of all items, dim) float16
      PART.content.npy       (tokens of all items,) bool

Items are found by the digest of their content, so data sets and splits share what they have
in common, and interrupted work goes on where it stopped.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import torch

from aladin.atomic import atomic_file, write_json
from aladin.encoders.base import Features
from aladin.errors import ShapeError

FORMAT_VERSION = 1


class _Place(NamedTuple):
    """Where an item's tokens lie."""

    part: str
    start: int
    stop: int


class FeatureCache:
    """The cached outputs of one frozen encoder."""

    def __init__(self, root: Path, encoder_digest: str) -> None:
        """Open or create the cache.

        Args:
            root: folder shared by all encoders.
            encoder_digest: of the weights, the architecture and the preprocessing.
        """
        version = f"{FORMAT_VERSION}:{encoder_digest}"
        self.folder = root / hashlib.sha256(version.encode()).hexdigest()[:16]
        self.folder.mkdir(parents=True, exist_ok=True)
        self._places: dict[str, _Place] = {}
        self._states: dict[str, npt.NDArray[np.float16]] = {}
        self._content: dict[str, npt.NDArray[np.bool_]] = {}
        for part in sorted(self.folder.glob("*.json")):
            self._open(part.stem)

    def __contains__(self, key: str) -> bool:
        """Tell whether an item is cached."""
        return key in self._places

    def add(self, keys: Sequence[str], features: Features) -> None:
        """Write one part.

        Args:
            keys: digests of the items' content.
            features: their encoder output; padding is not stored.

        Raises:
            ShapeError: not one key for each item.
        """
        if len(keys) != features.states.shape[0]:
            raise ShapeError(f"({len(keys)}, tokens, dim)", tuple(features.states.shape))
        part = hashlib.sha256("".join(keys).encode()).hexdigest()[:16]
        states = features.states[features.mask].to(torch.float16).cpu().numpy()
        content = features.content[features.mask].cpu().numpy()
        for name, values in (("states", states), ("content", content)):
            with (
                atomic_file(self.folder / f"{part}.{name}.npy") as partial,
                partial.open("wb") as file,
            ):
                np.save(file, values)
        lengths = features.mask.sum(dim=1).tolist()
        write_json(self.folder / f"{part}.json", {"keys": list(keys), "lengths": lengths})
        self._open(part)

    def get(self, keys: Sequence[str]) -> Features:
        """Gather items, padded to the longest.

        Args:
            keys: of cached items.

        Returns:
            Float32 features.
        """
        places = [self._places[key] for key in keys]
        longest = max(place.stop - place.start for place in places)
        dim = self._states[places[0].part].shape[1]
        states = np.zeros((len(keys), longest, dim), dtype=np.float16)
        content = np.zeros((len(keys), longest), dtype=np.bool_)
        mask = np.zeros((len(keys), longest), dtype=np.bool_)
        for row, (part, start, stop) in enumerate(places):
            states[row, : stop - start] = self._states[part][start:stop]
            content[row, : stop - start] = self._content[part][start:stop]
            mask[row, : stop - start] = True
        return Features(
            torch.from_numpy(states).float(), torch.from_numpy(mask), torch.from_numpy(content)
        )

    def _open(self, part: str) -> None:
        index = json.loads((self.folder / f"{part}.json").read_text(encoding="utf-8"))
        self._states[part] = np.load(self.folder / f"{part}.states.npy", mmap_mode="r")
        self._content[part] = np.load(self.folder / f"{part}.content.npy")
        start = 0
        for key, length in zip(index["keys"], index["lengths"], strict=True):
            self._places[key] = _Place(part, start, start + length)
            start += length


def content_digest(content: bytes, variant: str = "") -> str:
    """Return the key of an item: the digest of its bytes and of what is done to it first."""
    return hashlib.sha256(variant.encode() + b":" + content).hexdigest()

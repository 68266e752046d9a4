"""The cached outputs of frozen encoders: on disk, memory-mapped, or in the memory of a GPU.

    ROOT/ENCODER/            one folder per encoder, named by the digest of its configuration
      PART.json              keys and token counts; written last, so a part is complete if it exists
      PART.states.npy        (tokens of all items, dim) float16
      PART.content.npy       (tokens of all items,) bool

Items are keyed by the digest of their content, so data sets and splits share common items, and
interrupted work resumes where it stopped.

A step of a small network takes milliseconds on a GPU. Reading its batch from files and copying it
there takes as long, and the copy waits for the step before: features that are small enough are
therefore gathered there.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple, Protocol

import numpy as np
import numpy.typing as npt
import torch

from aladin_network.encoders.base import Features
from aladin_network.errors import ShapeError
from aladin_network.files import atomic_file, write_json

FORMAT_VERSION = 1


class _Place(NamedTuple):
    """Location of an item's tokens."""

    part: str
    start: int
    stop: int


class PackedFeatures(NamedTuple):
    """Items one after the other, without padding: states (tokens of all items, dim) float16."""

    keys: list[str]
    lengths: npt.NDArray[np.int64]
    states: npt.NDArray[np.float16]
    content: npt.NDArray[np.bool_]


class FeatureCache:
    """The cached outputs of one frozen encoder."""

    def __init__(self, root: Path, encoder_digest: str) -> None:
        """Open or create the cache."""
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
        """Write one part."""
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
        """Read items in float32, padded to the longest."""
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

    def packed(self, keys: Sequence[str]) -> PackedFeatures:
        """Read items as they are stored, one after the other."""
        places = [self._places[key] for key in keys]
        return PackedFeatures(
            list(keys),
            np.array([place.stop - place.start for place in places]),
            np.concatenate([self._states[part][start:stop] for part, start, stop in places]),
            np.concatenate([self._content[part][start:stop] for part, start, stop in places]),
        )

    def size_bytes(self, keys: Sequence[str]) -> int:
        """Return the memory that the states of items take, in float16; repeated ones count once."""
        places = [self._places[key] for key in dict.fromkeys(keys)]
        return sum(
            (place.stop - place.start) * self._states[place.part].shape[1] * 2 for place in places
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
    """Return the key of an item: a digest of its bytes and its preprocessing variant."""
    return hashlib.sha256(variant.encode() + b":" + content).hexdigest()


# Of the memory that is free. The photos and the captions of each split are looked at in turn.
_SHARE_OF_FREE_MEMORY = 0.25


class FeatureSource(Protocol):
    """Features by the keys of items."""

    def get(self, keys: Sequence[str]) -> Features:
        """Return items in float32, padded to the longest."""
        ...


class ResidentFeatures:
    """The features of some items in the memory of one device."""

    def __init__(self, cache: FeatureCache, keys: Sequence[str], device: torch.device) -> None:
        """Copy features from their files."""
        packed = cache.packed(list(dict.fromkeys(keys)))
        self._rows = {key: row for row, key in enumerate(packed.keys)}
        self._starts = np.concatenate([[0], np.cumsum(packed.lengths)[:-1]])
        self._lengths = packed.lengths
        self._padding = len(packed.states)  # row of the zeros that pad shorter items
        self._content = np.append(packed.content, False)
        states = torch.from_numpy(packed.states)
        self._states = torch.cat([states, states.new_zeros(1, states.shape[1])]).to(device)

    def get(self, keys: Sequence[str]) -> Features:
        """Gather items on the device, equal to those of `FeatureCache.get`."""
        rows = [self._rows[key] for key in keys]
        lengths = self._lengths[rows][:, None]
        token = np.arange(lengths.max())
        mask = token < lengths  # (keys, tokens)
        places = np.where(mask, self._starts[rows][:, None] + token, self._padding)
        where, known, content = (
            torch.from_numpy(each).to(self._states.device, non_blocking=True)
            for each in (places, mask, self._content[places])
        )
        return Features(self._states[where].float(), known, content)


def fastest_source(cache: FeatureCache, keys: Sequence[str], device: torch.device) -> FeatureSource:
    """Return features in a GPU's memory if they take little of what is free, or else the cache."""
    if device.type != "cuda":
        return cache
    free_bytes, _ = torch.cuda.mem_get_info(device)
    if cache.size_bytes(keys) > _SHARE_OF_FREE_MEMORY * free_bytes:
        return cache
    return ResidentFeatures(cache, keys, device)

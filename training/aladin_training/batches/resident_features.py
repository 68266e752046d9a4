"""Cached features in the memory of a GPU, from which a batch is gathered there.

A step of a small network takes milliseconds on a GPU. Reading its batch from files and copying it
there takes as long, and the copy waits for the step before.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import numpy as np
import torch

from aladin_network.encoders.base import Features
from aladin_training.batches.feature_cache import FeatureCache

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
        """Copy features from their files.

        Args:
            cache: Cache that holds the items.
            keys: Keys of the items; repeated ones are stored once.
            device: Device to hold them.
        """
        packed = cache.packed(list(dict.fromkeys(keys)))
        self._rows = {key: row for row, key in enumerate(packed.keys)}
        self._starts = np.concatenate([[0], np.cumsum(packed.lengths)[:-1]])
        self._lengths = packed.lengths
        self._padding = len(packed.states)  # row of the zeros that pad shorter items
        self._content = np.append(packed.content, False)
        states = torch.from_numpy(packed.states)
        self._states = torch.cat([states, states.new_zeros(1, states.shape[1])]).to(device)

    def get(self, keys: Sequence[str]) -> Features:
        """Gather items on the device, padded to the longest.

        Args:
            keys: Keys of items that were copied.

        Returns:
            Float32 features on the device; equal to those of `FeatureCache.get`.
        """
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
    """Return features in a GPU's memory if they take little of what is free, or else the cache.

    Args:
        cache: Cache that holds the items.
        keys: Keys of all items that will be read.
        device: Device of the networks.
    """
    if device.type != "cuda":
        return cache
    free_bytes, _ = torch.cuda.mem_get_info(device)
    if cache.size_bytes(keys) > _SHARE_OF_FREE_MEMORY * free_bytes:
        return cache
    return ResidentFeatures(cache, keys, device)

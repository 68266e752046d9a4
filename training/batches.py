"""Which pairs meet in which batch: a pure function of seed, stage and epoch."""

from __future__ import annotations

import hashlib
from typing import Literal, NamedTuple

import torch
from torch import Tensor


class BatchRows(NamedTuple):
    """One batch: pair n is photo ``photos[n]`` with its caption ``captions[n]``.

    Attributes:
        photos: rows of the training photos.
        captions: rows of all training captions.
        mirrored: whether the photo is shown mirrored.
    """

    photos: list[int]
    captions: list[int]
    mirrored: list[bool]


class BatchPlan:
    """The batches of a stage; any epoch can be asked for at any time, so a run can resume."""

    def __init__(
        self,
        captions_of_photo: list[list[int]],
        batch_size: int,
        sampling: Literal["captions", "photos"],
        mirror: bool,
        seed: str,
    ) -> None:
        """Lay out a stage.

        Args:
            captions_of_photo: for each photo the rows of its captions, at least one.
            batch_size: pairs a batch; the last, smaller one is dropped unless it is the only one.
            sampling: an epoch shows every caption once, or every photo once.
            mirror: mirror half of the photos.
            seed: any text.
        """
        self._captions_of_photo = captions_of_photo
        self._photo_of_caption = [
            photo for photo, captions in enumerate(captions_of_photo) for _ in captions
        ]
        self._captions = [caption for captions in captions_of_photo for caption in captions]
        self._sampling = sampling
        self._mirror = mirror
        self._seed = seed
        pairs = len(captions_of_photo) if sampling == "photos" else len(self._captions)
        self.batch_size = min(batch_size, pairs)
        self.batches_per_epoch = pairs // self.batch_size

    def epoch(self, epoch: int) -> list[BatchRows]:
        """Return the batches of one epoch."""
        digest = hashlib.sha256(f"{self._seed}:{epoch}".encode()).digest()
        generator = torch.Generator().manual_seed(int.from_bytes(digest[:7], "big"))
        if self._sampling == "photos":
            photos = torch.randperm(len(self._captions_of_photo), generator=generator).tolist()
            draws: list[float] = torch.rand(len(photos), generator=generator).tolist()
            captions = [
                choices[int(draw * len(choices))]
                for draw, choices in zip(
                    draws, (self._captions_of_photo[photo] for photo in photos), strict=True
                )
            ]
        else:
            order = torch.randperm(len(self._captions), generator=generator).tolist()
            photos = [self._photo_of_caption[pair] for pair in order]
            captions = [self._captions[pair] for pair in order]
        flips: Tensor = torch.rand(len(photos), generator=generator) < 0.5
        mirrored: list[bool] = flips.tolist() if self._mirror else [False] * len(photos)
        size = self.batch_size
        return [
            BatchRows(
                photos[start : start + size],
                captions[start : start + size],
                mirrored[start : start + size],
            )
            for start in range(0, self.batches_per_epoch * size, size)
        ]

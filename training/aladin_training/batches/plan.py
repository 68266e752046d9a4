"""The pairs of each batch, a pure function of seed, stage and epoch, and their shorter texts."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import NamedTuple, TypeVar

import torch
from jaxtyping import Bool
from torch import Tensor

from aladin_training.batches.batch import OfflineRows
from aladin_training.batches.items import draw_view
from aladin_training.batches.offline_negatives import OfflineNegatives, sample_offline
from aladin_training.config.stage import StageConfig
from aladin_training.data.phrases import Wording, draw_short_text, meanings_of
from aladin_training.data.records import Record
from aladin_training.parallel.distributed import BatchShare

# Shorter texts drawn for a caption, equal ones included. An epoch shows one of them at most, and
# frozen encoders cache the features of each.
_VERSIONS = 4


class ShortTexts:
    """Rows behind a data set's texts: shorter texts that follow from its captions.

    A query of two words describes many photos. In a batch, such a text is therefore no negative of
    a photo whose own captions say as much, see `Wording.holds`.
    """

    def __init__(self, records: Sequence[Record]) -> None:
        """Draw the texts, always the same ones for the same captions."""
        captions = [caption for record in records for caption in record.captions]
        self._first = len(captions)
        rows: dict[str, int] = {}
        self._rows_of_caption: list[list[int]] = []
        for caption in captions:
            generator = random.Random(caption)
            drawn = [draw_short_text(caption, generator) for _ in range(_VERSIONS)]
            self._rows_of_caption.append(
                [rows.setdefault(text, self._first + len(rows)) for text in drawn if text]
            )
        self.texts = list(rows)
        self._meanings = [meanings_of(text) for text in self.texts]
        self._wordings = [Wording(record.captions) for record in records]

    def replace(self, captions: Sequence[int], share: float, generator: random.Random) -> list[int]:
        """Replace a share of the captions, 0 to 1, by shorter texts of their own."""
        shown: list[int] = []
        for caption in captions:
            versions = self._rows_of_caption[caption]
            is_replaced = generator.random() < share
            shown.append(generator.choice(versions) if is_replaced and versions else caption)
        return shown

    def holding(self, photos: Sequence[int], texts: Sequence[int]) -> Bool[Tensor, "photos texts"]:
        """Mark the pairs whose shorter text, not caption, follows from a caption of the photo."""
        marked = torch.zeros(len(photos), len(texts), dtype=torch.bool)
        for place, text in enumerate(texts):
            if text >= self._first:
                meanings = self._meanings[text - self._first]
                marked[:, place] = torch.tensor(
                    [self._wordings[photo].holds(meanings) for photo in photos]
                )
        return marked


T = TypeVar("T")


class OfflineDraw(NamedTuple):
    """Mined negatives drawn for the pairs of a batch, and the views of their photos."""

    rows: OfflineRows
    views_bar: list[int]
    views_tilde: list[int]

    def of(self, own: slice) -> OfflineDraw:
        """Return the negatives of some of the pairs."""
        rows = self.rows.map(lambda each: each[own], lambda each: each[own], lambda each: each[own])
        return OfflineDraw(rows, self.views_bar[own], self.views_tilde[own])


class BatchRows(NamedTuple):
    """One batch of photos with K captions each; those of ``photos[n]`` start at n * K."""

    photos: list[int]
    captions: list[int]
    views: list[int]
    offline: OfflineDraw | None = None

    def of(self, share: BatchShare) -> BatchRows:
        """Return the rows of one process's photos, with their captions and mined negatives."""
        own = share.photos(len(self.photos))
        per_photo = len(self.captions) // len(self.photos)
        return BatchRows(
            photos=self.photos[own],
            captions=self.captions[own.start * per_photo : own.stop * per_photo],
            views=self.views[own],
            offline=self.offline.of(own) if self.offline is not None else None,
        )


def batches_of_epoch(items: int, batch_size: int) -> int:
    """Return the number of batches; a smaller last one is dropped unless it is the only one."""
    return items // min(batch_size, items)


class BatchPlan:
    """The batches of a stage; any epoch can be computed at any time, so that a run can resume."""

    def __init__(
        self,
        captions_of_photo: list[list[int]],
        views: int,
        stage: StageConfig,
        seed: str,
        offline: OfflineNegatives | None = None,
        short_texts: ShortTexts | None = None,
    ) -> None:
        """Plan a stage; each photo has at least one caption, and the seed is any text."""
        self._captions_of_photo = captions_of_photo
        self._photos = list(range(len(captions_of_photo)))
        if stage.share < 1:
            shown = max(1, round(stage.share * len(self._photos)))
            self._photos = sorted(random.Random(f"{seed}:share").sample(self._photos, shown))
        self._pairs = [
            (photo, caption) for photo in self._photos for caption in captions_of_photo[photo]
        ]
        self._stage = stage
        self._views = views
        self._seed = seed
        self._offline = offline
        self._short_texts = short_texts
        self._photo_of_caption = [
            photo for photo, captions in enumerate(captions_of_photo) for _ in captions
        ]
        items = len(self._pairs) if stage.captions_per_photo is None else len(self._photos)
        self.batch_size = min(stage.batch_size, items)
        self.batches_per_epoch = batches_of_epoch(items, stage.batch_size)

    def epoch(self, epoch: int) -> list[BatchRows]:
        """Return the batches of one epoch."""
        generator = random.Random(f"{self._seed}:{epoch}")
        captions_of_photo, captions_per_photo = (
            self._captions_of_photo,
            self._stage.captions_per_photo,
        )
        if captions_per_photo is None:
            shown = [(photo, [caption]) for photo, caption in self._pairs]
            generator.shuffle(shown)
        else:
            photos = list(self._photos)
            generator.shuffle(photos)
            shown = [
                (photo, draw_captions(captions_of_photo[photo], captions_per_photo, generator))
                for photo in photos
            ]
        size = self.batch_size
        return [
            self._batch(shown[start : start + size], generator)
            for start in range(0, self.batches_per_epoch * size, size)
        ]

    def _batch(self, shown: list[tuple[int, list[int]]], generator: random.Random) -> BatchRows:
        rows = BatchRows(
            photos=[photo for photo, _ in shown],
            captions=[caption for _, own in shown for caption in own],
            views=self._draw_views(len(shown), generator),
        )
        stage = self._stage
        if self._short_texts is not None and stage.short_captions:
            captions = self._short_texts.replace(rows.captions, stage.short_captions, generator)
            rows = rows._replace(captions=captions)
        if self._offline is None:
            return rows
        mined = sample_offline(
            list(zip(rows.photos, rows.captions, strict=True)),
            self._offline,
            self._captions_of_photo,
            self._photo_of_caption,
            generator,
            coupled=stage.offline is not None and stage.offline.coupled,
        )
        views = [self._draw_views(len(shown), generator) for _ in range(2)]
        return rows._replace(offline=OfflineDraw(mined, *views))

    def _draw_views(self, count: int, generator: random.Random) -> list[int]:
        return [draw_view(self._views, self._stage.new_crops, generator) for _ in range(count)]


def draw_captions(captions: Sequence[T], count: int, generator: random.Random) -> list[T]:
    """Draw captions of a photo, without repetition if it has enough of them."""
    if len(captions) >= count:
        return generator.sample(captions, count)
    return generator.choices(captions, k=count)

"""Which pairs meet in which batch: a pure function of seed, stage and epoch."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import NamedTuple, TypeVar

from aladin_training.batches.offline import OfflineNegatives, OfflineRows, sample_offline
from aladin_training.parallel.distributed import BatchShare

T = TypeVar("T")


class OfflineDraw(NamedTuple):
    """Mined negatives for the pairs of a batch.

    Attributes:
        rows: of photos and captions, pair by pair.
        views_bar: which view of each photo of ``rows.images_bar`` is shown.
        views_tilde: the same for ``rows.images_tilde``.
    """

    rows: OfflineRows
    views_bar: list[int]
    views_tilde: list[int]

    def of(self, own: slice) -> OfflineDraw:
        """Return what was drawn for some of the pairs."""
        rows = self.rows
        return OfflineDraw(
            rows=OfflineRows(
                images_bar=rows.images_bar[own],
                texts_bar=rows.texts_bar[own],
                images_tilde=rows.images_tilde[own],
                texts_tilde=rows.texts_tilde[own],
                cross=rows.cross[own],
            ),
            views_bar=self.views_bar[own],
            views_tilde=self.views_tilde[own],
        )


class BatchRows(NamedTuple):
    """One batch of photos with K captions each.

    Attributes:
        photos: B rows of the training photos.
        captions: B * K rows of all training captions; those of ``photos[n]`` are n * K onwards.
        views: which view of each photo is shown; 0 is the photo itself.
        offline: mined negatives of the B pairs, where the stage has them.
    """

    photos: list[int]
    captions: list[int]
    views: list[int]
    offline: OfflineDraw | None = None

    def of(self, share: BatchShare) -> BatchRows:
        """Return the rows of one process's photos, with their captions and offline negatives."""
        own = share.photos(len(self.photos))
        per_photo = len(self.captions) // len(self.photos)
        return BatchRows(
            photos=self.photos[own],
            captions=self.captions[own.start * per_photo : own.stop * per_photo],
            views=self.views[own],
            offline=self.offline.of(own) if self.offline is not None else None,
        )


class BatchPlan:
    """The batches of a stage; any epoch can be asked for at any time, so a run can resume."""

    def __init__(
        self,
        captions_of_photo: list[list[int]],
        batch_size: int,
        captions_per_photo: int | None,
        views: int,
        seed: str,
        offline: OfflineNegatives | None = None,
        coupled: bool = False,
    ) -> None:
        """Lay out a stage.

        Args:
            captions_of_photo: for each photo the rows of its captions, at least one.
            batch_size: photos a batch; the last, smaller one is dropped unless it is the only one.
            captions_per_photo: K random captions of each photo, which an epoch shows once; None:
                single pairs, and an epoch shows each caption once (the papers' sampling).
            views: number of views to draw from.
            seed: any text.
            offline: mined negatives to draw from for each pair.
            coupled: see `sample_offline`.
        """
        self._captions_of_photo = captions_of_photo
        self._pairs = [
            (photo, caption)
            for photo, captions in enumerate(captions_of_photo)
            for caption in captions
        ]
        self._captions_per_photo = captions_per_photo
        self._views = views
        self._seed = seed
        self._offline = offline
        self._coupled = coupled
        self._photo_of_caption = [
            photo for photo, captions in enumerate(captions_of_photo) for _ in captions
        ]
        items = len(self._pairs) if captions_per_photo is None else len(captions_of_photo)
        self.batch_size = min(batch_size, items)
        self.batches_per_epoch = items // self.batch_size

    def epoch(self, epoch: int) -> list[BatchRows]:
        """Return the batches of one epoch."""
        generator = random.Random(f"{self._seed}:{epoch}")
        captions_of_photo, captions_per_photo = self._captions_of_photo, self._captions_per_photo
        if captions_per_photo is None:
            shown = [(photo, [caption]) for photo, caption in self._pairs]
            generator.shuffle(shown)
        else:
            photos = list(range(len(captions_of_photo)))
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
        if self._offline is None:
            return rows
        drawn = sample_offline(
            list(zip(rows.photos, rows.captions, strict=True)),
            self._offline,
            self._captions_of_photo,
            self._photo_of_caption,
            generator,
            self._coupled,
        )
        views = [self._draw_views(len(shown), generator) for _ in range(2)]
        return rows._replace(offline=OfflineDraw(drawn, *views))

    def _draw_views(self, count: int, generator: random.Random) -> list[int]:
        return [generator.randrange(self._views) for _ in range(count)]


def draw_captions(captions: Sequence[T], count: int, generator: random.Random) -> list[T]:
    """Draw captions of a photo, different ones as far as it has them."""
    if len(captions) >= count:
        return generator.sample(captions, count)
    return generator.choices(captions, k=count)

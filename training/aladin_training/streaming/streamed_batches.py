"""The batches of a stage whose photos come front to back out of tars."""

from __future__ import annotations

import logging
import random
from collections import deque
from collections.abc import Generator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import closing
from itertools import chain
from typing import Literal, NamedTuple

import torch

from aladin_network.encoders.base import ImageInput
from aladin_network.errors import DataError, ImageError
from aladin_network.inference import content_digest
from aladin_network.photos.decoding import DEFAULT_LIMITS, decode_image
from aladin_training.batches.batch import Batch
from aladin_training.batches.dataset import BATCHES_AHEAD, WHOLE
from aladin_training.batches.items import THREADS, apply_view
from aladin_training.batches.plan import draw_captions
from aladin_training.losses.negatives import negative_mask
from aladin_training.parallel.distributed import BatchShare
from aladin_training.parallel.threads import prefetch
from aladin_training.streaming.draws import DrawnBatch, ShuffleBuffer, draw_batches, shard_order
from aladin_training.streaming.stream import PhotoStream, Sample

logger = logging.getLogger(__name__)


class _Shown(NamedTuple):
    """One place of a batch; `damaged` names the photos that could not be decoded for it."""

    image: ImageInput
    captions: list[str]
    damaged: list[str]


class _Decoding(NamedTuple):
    """A batch whose photos threads are at work on."""

    drawn: DrawnBatch
    shown: list[Future[_Shown]]


class StreamedBatches:
    """Batches of a stream; see `aladin_training.batches.dataset.BatchSource`."""

    def __init__(
        self,
        photos: PhotoStream,
        batch_size: int,
        captions_per_photo: int | None,
        seed: str,
        negatives: Literal["image", "diagonal"] = "image",
    ) -> None:
        """Lay out a stage.

        Args:
            photos: the stream.
            batch_size: photos a batch; those of an epoch's end that fill none are left out.
            captions_per_photo: random captions of each photo; None: one.
            seed: any text.
            negatives: "image": captions of one photo, known by its id, are no negatives of it;
                "diagonal": they are if the photo stands in the batch twice.
        """
        self._photos = photos
        self._batch_size = min(batch_size, photos.stream.photos)
        self._captions_per_photo = captions_per_photo or 1
        self._seed = seed
        self._negatives = negatives

    @property
    def batches_per_epoch(self) -> int:
        """Number of batches, the same in every epoch."""
        return self._photos.stream.photos // self._batch_size

    @property
    def digest(self) -> str:
        """Identify the data; a resumed run must find the same."""
        return self._photos.digest

    def epoch(self, number: int, start: int = 0, share: BatchShare = WHOLE) -> Generator[Batch]:
        """Yield the batches of an epoch from one on.

        A damaged photo is left out with a warning, and another one shown in its place.

        Args:
            number: of the epoch, counted from 0.
            start: batches that have been seen already.
            share: whose photos and captions are wanted.

        Raises:
            DataError: a tar cannot be used, or there is no photo in place of a damaged one.
        """
        return prefetch(self._batches(number, start, share), BATCHES_AHEAD)

    def _batches(self, epoch: int, start: int, share: BatchShare) -> Generator[Batch]:
        damaged: set[str] = set()
        with closing(self._decoding(epoch, start, share)) as decoding:
            for drawn, shown in decoding:
                each = [future.result() for future in shown]
                damaged.update(*(place.damaged for place in each))
                yield self._batch(drawn, each)
        if damaged:
            logger.warning("epoch %d: left out %d damaged photos", epoch, len(damaged))

    def _decoding(self, epoch: int, start: int, share: BatchShare) -> Generator[_Decoding]:
        """Yield batches that are being decoded, each while the next one's photos are read."""
        photos = self._photos
        stream = photos.stream.reordered(shard_order(len(photos.stream.shards), self._seed, epoch))
        lanes = ShuffleBuffer(stream.photos, self._batch_size, photos.shuffle, self._seed, epoch)
        wanted = range(start, self.batches_per_epoch)
        first_place = share.photos(self._batch_size).start
        begun: deque[_Decoding] = deque()
        pool = ThreadPoolExecutor(THREADS, thread_name_prefix="decoding")
        try:
            for number, drawn in zip(
                wanted, draw_batches(stream, lanes, wanted, share), strict=True
            ):
                seed = f"{self._seed}:{epoch}:{number}"
                shown = [
                    pool.submit(self._show, drawn, place, content, f"{seed}:{place}")
                    for place, content in enumerate(drawn.contents, start=first_place)
                ]
                begun.append(_Decoding(drawn, shown))
                if len(begun) > 1:
                    yield begun.popleft()
            yield from begun
        finally:
            pool.shutdown(cancel_futures=True)

    def _show(self, drawn: DrawnBatch, place: int, content: bytes | None, seed: str) -> _Shown:
        """Decode the photo of one place, or one in its place, and draw its view and captions."""
        generator = random.Random(seed)
        view = self._photos.views[generator.randrange(len(self._photos.views))]
        damaged: list[str] = []
        for sample, known in chain([(drawn.samples[place], content)], _spares(drawn, place)):
            try:
                data = sample.photo.read(DEFAULT_LIMITS.max_bytes) if known is None else known
                photo = decode_image(data, sample.photo.source)
            except ImageError as error:
                logger.warning("left out: %s", error)
                damaged.append(sample.photo.source)
                continue
            image = self._photos.image_encoder.preprocess(
                apply_view(photo, view, content_digest(data))
            )
            captions = draw_captions(sample.captions, self._captions_per_photo, generator)
            return _Shown(image, captions, damaged)
        tar = drawn.samples[place].photo.path
        reason = f"{len(damaged)} damaged photos, and no sound one to show in their place"
        raise DataError(tar, None, reason)

    def _batch(self, drawn: DrawnBatch, shown: Sequence[_Shown]) -> Batch:
        captions = [caption for each in shown for caption in each.captions]
        ids = [sample.id for sample in drawn.samples]
        numbers = {each: number for number, each in enumerate(ids)}
        photos = torch.tensor(
            [numbers[each] for each in ids] if self._negatives == "image" else range(len(ids))
        )
        return Batch(
            images=self._photos.image_encoder.collate([each.image for each in shown]),
            texts=self._photos.text_encoder.preprocess(captions, truncate=True),
            negatives=negative_mask(photos, photos.repeat_interleave(self._captions_per_photo)),
        )


def _spares(drawn: DrawnBatch, place: int) -> list[tuple[Sample, None]]:
    """Return the spares in the order in which a place tries them: no two begin with the same."""
    first = place % max(1, len(drawn.spares))
    return [(sample, None) for sample in drawn.spares[first:] + drawn.spares[:first]]

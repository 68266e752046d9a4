"""The batches of a stage whose photos are read sequentially from tars."""

from __future__ import annotations

import logging
import random
from collections import deque
from collections.abc import Generator, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import closing
from dataclasses import dataclass
from itertools import chain, islice
from typing import NamedTuple

import torch
from jaxtyping import Bool
from torch import Tensor

from aladin_network.encoders.base import ImageEncoder, ImageInput, TextEncoder
from aladin_network.errors import DataError, ImageError
from aladin_network.model import AladinModel
from aladin_network.photos.decoding import DEFAULT_LIMITS, decode_image
from aladin_network.photos.skipped import SkippedLines
from aladin_training.batches.batch import Batch
from aladin_training.batches.dataset import BATCHES_AHEAD, WHOLE
from aladin_training.batches.feature_cache import content_digest
from aladin_training.batches.inputs import CUT
from aladin_training.batches.items import THREADS, apply_view, draw_view, view_name
from aladin_training.batches.offline_negatives import OfflineNegatives
from aladin_training.batches.plan import draw_captions
from aladin_training.config.stage import StageConfig
from aladin_training.data.phrases import Wording, draw_short_text, meanings_of
from aladin_training.data.records import is_strict
from aladin_training.losses.negatives import negative_mask
from aladin_training.parallel.distributed import BatchShare
from aladin_training.parallel.threads import prefetch
from aladin_training.streaming.tar_stream import ReadSample, Sample, TarStream, read_samples

# The photos read last replace missing ones: two batches of them, so that half of them are in no
# batch at the same time, or more if batches are small and much may be missing.
LEAST_SPARES = 256


def shard_order(shards: int, seed: str, epoch: int) -> list[int]:
    """Return the order in which an epoch reads the shards, as their numbers."""
    return random.Random(f"{seed}:{epoch}:shards").sample(range(shards), shards)


class ShuffleBuffer:
    """The shuffle buffer, with one queue for each position in a batch.

    Photos enter a row at a time, one into each queue at random, and a batch takes one random photo
    from every queue. So the position of a photo in its batch is known when it is read, and only the
    process with that position needs its bytes. The first `entered` photos must be read before the
    next draw.
    """

    def __init__(self, photos: int, batch_size: int, shuffle: int, seed: str, epoch: int) -> None:
        """Fill the queues with at least two batches: the second stands in for the first."""
        self.batch_size = batch_size
        self.entered = 0
        self._photos = photos
        self._queues: list[list[int]] = [[] for _ in range(batch_size)]
        self._place_of: dict[int, int] = {}
        self._generator = random.Random(f"{seed}:{epoch}")
        for _ in range(max(2, shuffle // batch_size)):
            self._let_in()

    def draw(self) -> list[int]:
        """Return the photos of the next batch by their position in the stream."""
        batch: list[int] = []
        for queue in self._queues:
            number = self._generator.randrange(len(queue))
            queue[number], queue[-1] = queue[-1], queue[number]
            batch.append(queue.pop())
            del self._place_of[batch[-1]]
        self._let_in()
        return batch

    def place_of(self, photo: int) -> int | None:
        """Return the position in a batch of a waiting photo, or None if it does not wait."""
        return self._place_of.get(photo)

    @property
    def first_waiting(self) -> int:
        """First photo that waits to be drawn, or `entered` if none does."""
        return min(self._place_of, default=self.entered)

    def _let_in(self) -> None:
        row = range(self.entered, min(self._photos, self.entered + self.batch_size))
        places = self._generator.sample(range(self.batch_size), len(row))
        for photo, place in zip(row, places, strict=True):
            self._queues[place].append(photo)
            self._place_of[photo] = place
        self.entered = row.stop


class DrawnBatch(NamedTuple):
    """Samples of a batch, bytes of this process's share, and spares for damaged photos."""

    samples: list[Sample]
    contents: list[bytes | None]
    spares: list[Sample]


def draw_batches(
    stream: TarStream, buffer: ShuffleBuffer, wanted: range, share: BatchShare
) -> Iterator[DrawnBatch]:
    """Yield some of the batches of an epoch, reading only what these need of the tars."""
    own = share.photos(buffer.batch_size)
    for _ in range(wanted.start):
        buffer.draw()

    def wants(photo: int) -> bool:
        place = buffer.place_of(photo)
        return place is not None and own.start <= place < own.stop

    spares = max(LEAST_SPARES, 2 * buffer.batch_size)
    last_read: deque[Sample | None] = deque(maxlen=spares)
    position = max(0, min(buffer.first_waiting, buffer.entered - spares))
    reading = enumerate(read_samples(stream, position, wants), start=position)
    held: dict[int, ReadSample] = {}
    for _ in wanted:
        for photo, read in islice(reading, buffer.entered - position):
            last_read.append(read.sample)
            if buffer.place_of(photo) is not None:
                held[photo] = read
        position = buffer.entered
        yield _with_spares([held.pop(photo) for photo in buffer.draw()], last_read, own, stream)


def _with_spares(
    batch: Sequence[ReadSample], last_read: Sequence[Sample | None], own: slice, stream: TarStream
) -> DrawnBatch:
    """Replace missing photos by spares; every process chooses the same ones."""
    shown = {each.sample.id for each in batch if each.sample is not None}
    others = {each.id: each for each in last_read if each is not None and each.id not in shown}
    spares = list(others.values())
    samples: list[Sample] = []
    for sample, _ in batch:
        if sample is None:
            if not spares:
                root = stream.shards[0].root
                reason = "too many photos were counted that have no caption or are not there"
                raise DataError(root, None, f"{reason}; without *_stats.json tars are counted anew")
            sample = spares.pop()
        samples.append(sample)
    return DrawnBatch(samples, [each.content for each in batch[own]], spares)


logger = logging.getLogger(__name__)


class _Shown(NamedTuple):
    """One position of a batch, with the reasons of photos that could not be decoded for it."""

    image: ImageInput
    captions: list[str]
    damaged: dict[str, str]


class _Choice(NamedTuple):
    """What is shown of a photo; `is_short` marks the texts that replace a caption."""

    view: str
    texts: list[str]
    is_short: list[bool]


class _Decoding(NamedTuple):
    """A batch whose photos are being decoded in threads; `seed` chooses what they show."""

    seed: str
    drawn: DrawnBatch
    shown: list[Future[_Shown]]


@dataclass(frozen=True)
class PhotoStream:
    """A stream of photos and captions, with the encoders that preprocess them."""

    stream: TarStream
    image_encoder: ImageEncoder
    text_encoder: TextEncoder
    views: tuple[str, ...]
    shuffle: int

    @property
    def digest(self) -> str:
        """Digest of the data; a resumed run must find the same."""
        return self.stream.digest

    def read_by(
        self,
        model: AladinModel,  # noqa: ARG002
        others: Mapping[str, AladinModel] | None = None,  # noqa: ARG002
    ) -> PhotoStream:
        """Return the stream itself: every network reads photos and captions, not their features."""
        return self

    def batches(
        self,
        stage: StageConfig,
        seed: str,
        offline: OfflineNegatives | None = None,  # noqa: ARG002
    ) -> StreamedBatches:
        """Return the batches of a stage; recipes refuse mined negatives for a stream."""
        return StreamedBatches(self, stage, seed)


class StreamedBatches:
    """Batches of a stream; see `aladin_training.batches.dataset.BatchSource`."""

    def __init__(self, photos: PhotoStream, stage: StageConfig, seed: str) -> None:
        """Set up the batches of a stage; an incomplete one at the end of an epoch is dropped."""
        self._photos = photos
        self._batch_size = min(stage.batch_size, photos.stream.photos)
        self._captions_per_photo = stage.captions_per_photo or 1
        self._seed = seed
        self._stage = stage
        self._strict = is_strict()  # batches are made in other threads

    @property
    def batches_per_epoch(self) -> int:
        """Number of batches, the same in every epoch."""
        return self._photos.stream.photos // self._batch_size

    @property
    def digest(self) -> str:
        """Digest of the data; a resumed run must find the same."""
        return self._photos.digest

    def epoch(self, number: int, start: int = 0, share: BatchShare = WHOLE) -> Generator[Batch]:
        """Yield batches from one on; others stand in for damaged photos, unless `strict_data`."""
        return prefetch(self._batches(number, start, share), BATCHES_AHEAD)

    def _batches(self, epoch: int, start: int, share: BatchShare) -> Generator[Batch]:
        damaged: dict[str, str] = {}
        lines = SkippedLines()
        cut = 0
        with closing(self._decoding(epoch, start, share)) as decoding:
            for seed, drawn, shown in decoding:
                each = [future.result() for future in shown]
                found = {name: why for place in each for name, why in place.damaged.items()}
                for name in found.keys() - damaged.keys():
                    for line in lines.add(name, found[name]):
                        logger.warning("%s", line)
                damaged |= found
                captions = [caption for place in each for caption in place.captions]
                cut += self._photos.text_encoder.count_too_long(captions)
                yield self._batch(seed, drawn, each)
        if damaged:
            logger.warning("epoch %d: skipped %d damaged photos", epoch, len(damaged))
        if 2 * len(damaged) * share.world > self._photos.stream.photos:
            reason = f"{len(damaged)} photos of an epoch are damaged, more than half"
            raise DataError(self._photos.stream.shards[0].root, None, reason)
        if cut:
            logger.warning("epoch %d: %d captions %s", epoch, cut, CUT)

    def _decoding(self, epoch: int, start: int, share: BatchShare) -> Generator[_Decoding]:
        """Yield batches in the course of decoding, each while the next one's photos are read."""
        photos = self._photos
        stream = photos.stream.reordered(shard_order(len(photos.stream.shards), self._seed, epoch))
        buffer = ShuffleBuffer(stream.photos, self._batch_size, photos.shuffle, self._seed, epoch)
        wanted = range(start, self.batches_per_epoch)
        first_place = share.photos(self._batch_size).start
        begun: deque[_Decoding] = deque()
        pool = ThreadPoolExecutor(THREADS, thread_name_prefix="decoding")
        try:
            for number, drawn in zip(
                wanted, draw_batches(stream, buffer, wanted, share), strict=True
            ):
                seed = f"{self._seed}:{epoch}:{number}"
                shown = [
                    pool.submit(self._show, drawn, place, content, f"{seed}:{place}")
                    for place, content in enumerate(drawn.contents, start=first_place)
                ]
                begun.append(_Decoding(seed, drawn, shown))
                if len(begun) > 1:
                    yield begun.popleft()
            yield from begun
        finally:
            pool.shutdown(cancel_futures=True)

    def _show(self, drawn: DrawnBatch, place: int, content: bytes | None, seed: str) -> _Shown:
        """Decode the photo of one position, or a replacement, and draw its view and captions."""
        damaged: dict[str, str] = {}
        for sample, known in chain([(drawn.samples[place], content)], _spares(drawn, place)):
            try:
                data = sample.photo.read(DEFAULT_LIMITS.max_bytes) if known is None else known
                photo = decode_image(data, sample.photo.source)
            except ImageError as error:
                if self._strict:
                    raise
                damaged[error.source] = error.reason
                continue
            choice = self._choose(sample, seed)
            image = self._photos.image_encoder.preprocess(
                apply_view(photo, choice.view, content_digest(data))
            )
            return _Shown(image, choice.texts, damaged)
        tar = drawn.samples[place].photo.path
        reason = f"{len(damaged)} damaged photos, and no valid one to replace them"
        raise DataError(tar, None, reason)

    def _choose(self, sample: Sample, seed: str) -> _Choice:
        """Choose the view and the texts of a photo, the same ones for the same seed."""
        generator = random.Random(seed)
        names = self._photos.views
        view = view_name(names, draw_view(len(names), self._stage.new_crops, generator))
        captions = draw_captions(sample.captions, self._captions_per_photo, generator)
        short = [
            draw_short_text(caption, generator)
            if generator.random() < self._stage.short_captions
            else None
            for caption in captions
        ]
        texts = [text or caption for text, caption in zip(short, captions, strict=True)]
        return _Choice(view, texts, [text is not None for text in short])

    def _batch(self, seed: str, drawn: DrawnBatch, shown: Sequence[_Shown]) -> Batch:
        captions = [caption for each in shown for caption in each.captions]
        ids = [sample.id for sample in drawn.samples]
        numbers = {each: number for number, each in enumerate(ids)}
        photos = torch.tensor(
            [numbers[each] for each in ids] if self._stage.negatives == "image" else range(len(ids))
        )
        negatives = negative_mask(photos, photos.repeat_interleave(self._captions_per_photo))
        if self._stage.short_captions:
            negatives &= ~self._holding(seed, drawn)
        return Batch(
            images=self._photos.image_encoder.collate([each.image for each in shown]),
            texts=self._photos.text_encoder.preprocess(captions, truncate=True),
            negatives=negatives,
        )

    def _holding(self, seed: str, drawn: DrawnBatch) -> Bool[Tensor, "photos texts"]:
        """Mark the pairs of the whole batch whose shorter text follows from a photo's captions."""
        wordings = [Wording(sample.captions) for sample in drawn.samples]
        columns: list[list[bool]] = []
        for place, sample in enumerate(drawn.samples):
            _, texts, is_short = self._choose(sample, f"{seed}:{place}")
            for text, short in zip(texts, is_short, strict=True):
                meanings = meanings_of(text)
                columns.append([short and each.holds(meanings) for each in wordings])
        return torch.tensor(columns).T


def _spares(drawn: DrawnBatch, place: int) -> list[tuple[Sample, None]]:
    """Return the spares in the order in which a position tries them, starting at different ones."""
    first = place % max(1, len(drawn.spares))
    return [(sample, None) for sample in drawn.spares[first:] + drawn.spares[:first]]

"""Photos and captions of one split as a network reads them, and the batches of a stage."""

from __future__ import annotations

import copy
from collections.abc import Callable, Generator, Mapping, Sequence
from typing import Any, Literal, Protocol

import torch

from aladin_network.encoders.base import to_device
from aladin_network.errors import DataError
from aladin_network.model import AladinModel
from aladin_network.scoring.scores import EncodedBatch, concatenate
from aladin_network.types import NullProgress, Progress
from aladin_training.batches.batch import Batch, OfflineBatch
from aladin_training.batches.inputs import Caches, InputStore, NetworkInputs, warn_of_long_captions
from aladin_training.batches.items import check_regions, region_items, usable_photos
from aladin_training.batches.offline_negatives import OfflineNegatives
from aladin_training.batches.plan import BatchPlan, BatchRows, OfflineDraw, ShortTexts
from aladin_training.config.stage import StageConfig
from aladin_training.data import Record
from aladin_training.data.records import records_digest
from aladin_training.data.regions import RegionStore
from aladin_training.losses.negatives import negative_mask
from aladin_training.parallel.distributed import BatchShare
from aladin_training.parallel.threads import prefetch

# Cached features, and photos and captions that go through an encoder, at a time.
CACHED_A_BATCH = 250
READ_A_BATCH = 32

WHOLE = BatchShare(rank=0, world=1)
# The next batches are prepared while the network works on one; more would only cost memory.
BATCHES_AHEAD = 2


class PairDataset:
    """The photos of a split, each with its captions, as one network reads them."""

    def __init__(
        self,
        store: InputStore,
        records: Sequence[Record],
        views: int,
        short_texts: ShortTexts | None = None,
    ) -> None:
        """Combine photos and captions; the store also has the shorter texts, behind them."""
        self.views = views
        self.short_texts = short_texts
        self.records = list(records)
        self.captions = [caption for record in records for caption in record.captions]
        self.captions_of_photo: list[list[int]] = []
        first = 0
        for record in records:
            self.captions_of_photo.append(list(range(first, first + len(record.captions))))
            first += len(record.captions)
        self.image_of_text = torch.tensor(
            [photo for photo, rows in enumerate(self.captions_of_photo) for _ in rows]
        )
        self._store = store
        self.inputs = store.unencoded
        self._others: dict[str, NetworkInputs] = {}
        self._reader: AladinModel | None = None

    @classmethod
    def prepare(
        cls,
        records: Sequence[Record],
        model: AladinModel,
        caches: Caches,
        views: Sequence[str],
        progress: Progress,
        regions: RegionStore | None = None,
        short_captions: bool = False,
    ) -> PairDataset:
        """Find the photos that can be used; nothing is encoded before a network reads them."""
        encoder = model.image.encoder
        check_regions(encoder, regions)
        if regions is not None:
            items, kept = region_items(records, encoder, regions), list(records)
        else:
            cache = caches.of_photos(encoder) if encoder.frozen else None
            items, usable = usable_photos([each.photo for each in records], views, cache, progress)
            if not usable:
                raise DataError(records[0].photo.path.parent, None, "no photo can be decoded")
            kept = [records[row] for row in usable]
        short_texts = ShortTexts(kept) if short_captions else None
        texts = [caption for record in kept for caption in record.captions]
        warn_of_long_captions(model.text.encoder, texts)
        texts += short_texts.texts if short_texts is not None else []
        store = InputStore(items, texts, model, caches, progress)
        return cls(store, kept, items.views, short_texts)

    def read_by(
        self, model: AladinModel, others: Mapping[str, AladinModel] | None = None
    ) -> PairDataset:
        """Return the same set for networks with their present weights, whose caches it fills."""
        reading = copy.copy(self)
        reading._reader, reading.inputs = model, self._store.inputs_of(model)
        reading._others = {
            name: self._store.inputs_of(each) for name, each in (others or {}).items()
        }
        return reading

    @property
    def digest(self) -> str:
        """Digest of photos, captions and their order; a resumed run must find the same."""
        return records_digest(self.records)

    def batches(
        self, stage: StageConfig, seed: str, offline: OfflineNegatives | None = None
    ) -> PlannedBatches:
        """Plan the batches of a stage; see `TrainingSet`."""
        return PlannedBatches(self, stage, seed, offline)

    def batch(
        self,
        rows: BatchRows,
        negatives: Literal["image", "diagonal"] = "image",
        share: BatchShare | None = None,
    ) -> Batch:
        """Gather a training batch, or a process's share of it with the negatives of the whole.

        By "image", captions of a photo are no negatives of it; by "diagonal" they are, if the photo
        occurs twice in the batch.
        """
        shown = rows.photos if negatives == "image" else range(len(rows.photos))
        photos = torch.tensor(shown)
        per_photo = len(rows.captions) // len(rows.photos)
        own = rows if share is None else rows.of(share)
        matrix = negative_mask(photos, photos.repeat_interleave(per_photo))
        if self.short_texts is not None:
            matrix &= ~self.short_texts.holding(rows.photos, rows.captions)
        batch = Batch(
            images=self.inputs.photos.get(own.photos, own.views),
            texts=self.inputs.texts.get(own.captions),
            negatives=matrix,
            offline=_offline(self.inputs, own.offline) if own.offline else None,
        )
        others = {name: self._as_read_by(each, batch, own) for name, each in self._others.items()}
        return batch._replace(others=others)

    def _as_read_by(self, inputs: NetworkInputs, batch: Batch, rows: BatchRows) -> Batch:
        """Gather a batch for another network; inputs that both read are gathered once."""
        if inputs.photos is not self.inputs.photos:
            batch = batch._replace(images=inputs.photos.get(rows.photos, rows.views))
        if inputs.texts is not self.inputs.texts:
            batch = batch._replace(texts=inputs.texts.get(rows.captions))
        if rows.offline and inputs != self.inputs:
            batch = batch._replace(offline=_offline(inputs, rows.offline))
        return batch

    @torch.inference_mode()
    def encode(
        self,
        model: AladinModel,
        keep: Callable[[EncodedBatch], EncodedBatch] = lambda encoding: encoding,
        progress: Progress | None = None,
    ) -> tuple[EncodedBatch, EncodedBatch]:
        """Encode images, and texts in the order of `captions`; `keep` reduces each batch."""
        device = next(model.parameters()).device
        progress = progress or NullProgress()
        inputs = self.inputs if model is self._reader else self._store.inputs_of(model)

        def encoded(
            count: int,
            cached: bool,
            get: Callable[[range], Any],
            encode: Callable[[Any], EncodedBatch],
        ) -> EncodedBatch:
            parts: list[EncodedBatch] = []
            rows = _chunks(count, CACHED_A_BATCH if cached else READ_A_BATCH)
            for batch in prefetch((get(each) for each in rows), 1):
                parts.append(keep(encode(to_device(batch, device))))
                progress.advance(parts[-1].size)
            return concatenate(parts)

        progress.start(len(self.captions_of_photo), "photos")
        images = encoded(
            len(self.captions_of_photo),
            model.image.encoder.frozen,
            lambda rows: inputs.photos.get(rows, [0] * len(rows)),
            model.encode_images,
        )
        progress.start(len(self.captions), "captions")
        texts = encoded(
            len(self.captions), model.text.encoder.frozen, inputs.texts.get, model.encode_texts
        )
        return images, texts


def _offline(inputs: NetworkInputs, drawn: OfflineDraw) -> OfflineBatch:
    rows, views_bar, views_tilde = drawn
    return OfflineBatch(
        images_bar=inputs.photos.get(rows.images_bar, views_bar),
        texts_bar=inputs.texts.get(rows.texts_bar),
        images_tilde=inputs.photos.get(rows.images_tilde, views_tilde),
        texts_tilde=inputs.texts.get(rows.texts_tilde),
        cross=torch.tensor(rows.cross),
    )


def _chunks(total: int, size: int) -> list[range]:
    return [range(start, min(total, start + size)) for start in range(0, total, size)]


class BatchSource(Protocol):
    """The batches of a stage, a function of its seed and the epoch."""

    @property
    def batches_per_epoch(self) -> int:
        """Number of batches, the same in every epoch."""
        ...

    @property
    def digest(self) -> str:
        """Digest of the data; a resumed run must find the same."""
        ...

    def epoch(self, number: int, start: int = 0, share: BatchShare = WHOLE) -> Generator[Batch]:
        """Yield an epoch's batches from number `start` on, as an uninterrupted epoch would.

        Nothing is decoded for those before it. A share has its own photos and captions, and the
        negatives of the whole batch. Close the generator, or read it up, to end its threads.
        """
        ...


class TrainingSet(Protocol):
    """Photos and captions to train on: read in any order, or streamed."""

    @property
    def digest(self) -> str:
        """Digest of the data; a resumed run must find the same."""
        ...

    def read_by(
        self, model: AladinModel, others: Mapping[str, AladinModel] | None = None
    ) -> TrainingSet:
        """Return the same set for networks with their present weights."""
        ...

    def batches(
        self, stage: StageConfig, seed: str, offline: OfflineNegatives | None = None
    ) -> BatchSource:
        """Return the batches of a stage, with mined negatives if it uses them."""
        ...


class PlannedBatches:
    """Batches of a data set whose photos can be read in any order."""

    def __init__(
        self,
        pairs: PairDataset,
        stage: StageConfig,
        seed: str,
        offline: OfflineNegatives | None = None,
    ) -> None:
        """Plan the batches of a stage; the seed is any text."""
        self._pairs = pairs
        self._plan = BatchPlan(
            pairs.captions_of_photo, pairs.views, stage, seed, offline, pairs.short_texts
        )
        self._negatives: Literal["image", "diagonal"] = stage.negatives

    @property
    def batches_per_epoch(self) -> int:
        """Number of batches, the same in every epoch."""
        return self._plan.batches_per_epoch

    @property
    def digest(self) -> str:
        """Digest of the data; a resumed run must find the same."""
        return self._pairs.digest

    def epoch(self, number: int, start: int = 0, share: BatchShare = WHOLE) -> Generator[Batch]:
        """Yield the batches of an epoch from one on; see `BatchSource.epoch`."""
        batches = (
            self._pairs.batch(rows, self._negatives, share)
            for rows in self._plan.epoch(number)[start:]
        )
        return prefetch(batches, BATCHES_AHEAD)

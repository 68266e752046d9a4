"""Photos and captions of one split, ready for the network."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Literal

import torch

from aladin.encoding import Encoding, concatenate
from aladin.errors import DataError
from aladin.model import AladinModel
from aladin.progress import NullProgress, Progress
from aladin.strict_config import dump_config
from training.batches import BatchRows, OfflineDraw, Share
from training.data import Record
from training.inputs import PhotoInputs, TextInputs, prepare_photos, prepare_texts
from training.losses.negatives import negative_mask
from training.precision import Precision
from training.tasks.batch import Batch, OfflineBatch, to_device

ITEMS_A_BATCH = 250


class PairDataset:
    """The photos of a split, each with its captions."""

    def __init__(
        self, photos: PhotoInputs, texts: TextInputs, records: Sequence[Record], views: int
    ) -> None:
        """Tie photos and captions together.

        Args:
            photos: by row.
            texts: by row, in the order of the records' captions.
            records: by row of the photo.
            views: number of views of each photo.
        """
        self.views = views
        self.photos = photos
        self.texts = texts
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

    @classmethod
    def prepare(
        cls,
        records: Sequence[Record],
        model: AladinModel,
        cache_root: Path,
        views: Sequence[str],
        precision: Precision,
        progress: Progress,
    ) -> PairDataset:
        """Read the photos and captions, through the feature cache where an encoder is frozen.

        Args:
            records: with captions.
            model: its encoders preprocess, and fill the cache.
            cache_root: folder of all caches.
            views: of `training.views.view_names`.
            precision: frozen encoders compute in.
            progress: told of photos, then of captions.

        Raises:
            DataError: no photo can be used.
        """
        photos, usable = prepare_photos(
            [record.photo for record in records],
            model.image.encoder,
            _digest(model, "image"),
            cache_root,
            views,
            precision,
            progress,
        )
        if not usable:
            raise DataError(records[0].photo.path.parent, None, "no photo can be decoded")
        kept = [records[row] for row in usable]
        captions = [caption for record in kept for caption in record.captions]
        texts = prepare_texts(
            captions, model.text.encoder, _digest(model, "text"), cache_root, precision, progress
        )
        return cls(photos, texts, kept, len(views))

    @property
    def digest(self) -> str:
        """Identify photos, captions and their order; a resumed run must find the same."""
        ids = [record.id for record in self.records]
        content = json.dumps([ids, self.captions, self.captions_of_photo])
        return hashlib.sha256(content.encode()).hexdigest()

    def batch(
        self,
        rows: BatchRows,
        negatives: Literal["image", "diagonal"] = "image",
        share: Share | None = None,
    ) -> Batch:
        """Gather one training batch.

        Args:
            rows: of photos and captions.
            negatives: "image": captions of one photo are no negatives of it; "diagonal": they
                are if the photo stands in the batch twice.
            share: only these photos with their captions; the negatives are of the whole batch.
        """
        shown = rows.photos if negatives == "image" else range(len(rows.photos))
        photos = torch.tensor(shown)
        per_photo = len(rows.captions) // len(rows.photos)
        own = rows if share is None else rows.of(share)
        return Batch(
            images=self.photos.get(own.photos, own.views),
            texts=self.texts.get(own.captions),
            negatives=negative_mask(photos, photos.repeat_interleave(per_photo)),
            offline=self._offline(own.offline) if own.offline else None,
        )

    def _offline(self, drawn: OfflineDraw) -> OfflineBatch:
        rows, views_bar, views_tilde = drawn
        return OfflineBatch(
            images_bar=self.photos.get(rows.images_bar, views_bar),
            texts_bar=self.texts.get(rows.texts_bar),
            images_tilde=self.photos.get(rows.images_tilde, views_tilde),
            texts_tilde=self.texts.get(rows.texts_tilde),
            cross=torch.tensor(rows.cross),
        )

    @torch.inference_mode()
    def encode(
        self,
        model: AladinModel,
        keep: Callable[[Encoding], Encoding] = lambda encoding: encoding,
        progress: Progress | None = None,
    ) -> tuple[Encoding, Encoding]:
        """Encode the whole split.

        Args:
            model: in evaluation mode.
            keep: what is kept of each batch; all of it takes much memory for a large split.
            progress: told of photos, then of captions.

        Returns:
            The images, and the texts in the order of `captions`.
        """
        device = next(model.parameters()).device
        progress = progress or NullProgress()
        images: list[Encoding] = []
        progress.start(len(self.captions_of_photo), "photos")
        for rows in _chunks(len(self.captions_of_photo), ITEMS_A_BATCH):
            photos = to_device(self.photos.get(rows, [0] * len(rows)), device)
            images.append(keep(model.encode_images(photos)))
            progress.advance(len(rows))
        texts: list[Encoding] = []
        progress.start(len(self.captions), "captions")
        for rows in _chunks(len(self.captions), ITEMS_A_BATCH):
            captions = to_device(self.texts.get(rows), device)
            texts.append(keep(model.encode_texts(captions)))
            progress.advance(len(rows))
        return concatenate(images), concatenate(texts)


def _digest(model: AladinModel, modality: str) -> str:
    """Identify all that shapes a frozen encoder's output; a trained one is never cached."""
    if modality == "image":
        encoder, extra = model.image.encoder, ""
    else:
        encoder, extra = model.text.encoder, model.text.encoder.tokenizer.to_str()
    if not encoder.frozen:
        return ""
    config = dump_config(encoder.config) | {"source": None}
    content = json.dumps(config, sort_keys=True) + extra + encoder.weights_digest()
    return hashlib.sha256(content.encode()).hexdigest()


def _chunks(total: int, size: int) -> list[range]:
    return [range(start, min(total, start + size)) for start in range(0, total, size)]

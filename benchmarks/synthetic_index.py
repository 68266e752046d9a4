"""Builds an index of synthetic photos as an import of ready-made encodings does."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from aladin.checkpoint import load_checkpoint, save_checkpoint
from benchmarks.small_model import small_model
from benchmarks.synthetic import SyntheticPhotos, TextQueries
from benchmarks.synthetic_sources import EMBEDDING_DIM, REGIONS, TOKEN_DIM
from index.building.generation_writer import SideSource, write_generation
from index.building.publish import describe_model, install_model
from index.building.side_writer import EncodedPart
from index.building.stage_seconds import StageSeconds
from index.disk import disk_errors, only_builder
from index.items.tables import StoredItem
from index.settings import BuildSettings, Target
from index.tokens.codec import TokenCodec
from index.tokens.sample import codec_for

# Texts on the index's other side. The first stage is calibrated with them, as it is in real use;
# whoever measures it draws others.
_TEXTS = 2000
_CODEC_SAMPLE_PHOTOS = 1024


def write_synthetic_index(
    root: Path, photos: SyntheticPhotos, count: int, settings: BuildSettings
) -> dict[str, float]:
    """Build an index of the first `count` photos, and of some texts.

    Args:
        root: of the index; new.
        photos: where they come from.
        count: number of photos.
        settings: of the first stage and of the tokens.

    Returns:
        Seconds by stage: "draw" makes the photos, which a real import would read; "pack" brings
        tokens into their stored form; "write" and "ann" are the writer's.
    """
    seconds = StageSeconds()
    with tempfile.TemporaryDirectory() as folder:
        checkpoint = Path(folder) / "checkpoint"
        save_checkpoint(checkpoint, small_model(EMBEDDING_DIM, TOKEN_DIM))
        with disk_errors(root), only_builder(root):
            model = describe_model(checkpoint, load_checkpoint(checkpoint).model_id)
            install_model(root, checkpoint, model)
            first = next(iter(photos.photos(min(count, _CODEC_SAMPLE_PHOTOS))))
            sample = first.tokens.reshape(-1, TOKEN_DIM)
            texts = photos.queries(_TEXTS, count)
            # As a build does: each side is rounded with what the other one asks.
            codec = codec_for(settings.token_dtype, [sample], texts.words)
            text_codec = codec_for(settings.token_dtype, texts.words, [sample])
            sides: dict[Target, SideSource] = {
                "images": SideSource(
                    embedding_dim=EMBEDDING_DIM,
                    codec=codec,
                    parts=_photo_parts(photos, count, codec, seconds),
                ),
                "texts": SideSource(
                    embedding_dim=EMBEDDING_DIM,
                    codec=text_codec,
                    parts=[_text_part(texts, text_codec)],
                ),
            }
            write_generation(root, sides, model, settings, "synthetic", seconds=seconds)
    # The parts are made while they are written.
    made = seconds.seconds["draw"] + seconds.seconds["pack"]
    seconds.add("write", -made)
    return dict(seconds.seconds)


def _photo_parts(
    photos: SyntheticPhotos, count: int, codec: TokenCodec, seconds: StageSeconds
) -> Iterator[EncodedPart]:
    batches = photos.photos(count)
    written = 0
    while written < count:
        with seconds.measure("draw"):
            batch = next(batches)
        with seconds.measure("pack"):
            packed = codec.pack(batch.tokens.reshape(-1, TOKEN_DIM))
        numbers = range(written, written + len(batch.embeddings))
        lengths = np.full(len(numbers), REGIONS, dtype=np.int64)
        yield EncodedPart([synthetic_item(n) for n in numbers], batch.embeddings, packed, lengths)
        written = numbers.stop


def _text_part(texts: TextQueries, codec: TokenCodec) -> EncodedPart:
    items = [
        StoredItem(
            row=place,
            id=f"text-{place}",
            uri=None,
            path=None,
            text=f"a text for photo {photo}",
            image_id=f"photo-{photo}",
            width_px=None,
            height_px=None,
            metadata={},
        )
        for place, photo in enumerate(texts.photos.tolist())
    ]
    lengths = np.array([len(words) for words in texts.words], dtype=np.int64)
    packed = codec.pack(np.concatenate(texts.words))
    return EncodedPart(items, texts.embeddings, packed, lengths)


def synthetic_item(number: int) -> StoredItem:
    """Return what is kept of photo `number`, its encodings aside."""
    return StoredItem(
        row=number,
        id=f"photo-{number}",
        uri=f"album/{number}.jpg",
        path=f"/photos/album/{number}.jpg",
        text="two dogs run on the green grass",
        image_id=None,
        width_px=640,
        height_px=480,
        metadata={"year": 2000 + number % 20, "number": number, "city": "Pisa"},
    )

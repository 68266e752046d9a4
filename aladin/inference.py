"""From photos and texts to encodings, as indexing and serving do it: no gradient, float32 out."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from PIL import Image

from aladin.encoders.base import ImageInput, TextBatch, to_device
from aladin.encoding import Encoding, concatenate
from aladin.errors import InputError
from aladin.model import AladinModel

# Early maps of a convolutional network are large: beyond some MiB the allocator gives their memory
# back after every layer, and most of the time goes into getting it again. A photo of MobileNetV2 on
# one thread takes 19 ms alone, 17 of two, 20 of four, 28 of eight.
PHOTOS_AT_A_TIME = 2


@torch.inference_mode()
def encode_photos(model: AladinModel, photos: Sequence[Image.Image]) -> Encoding:
    """Encode decoded RGB photos.

    Args:
        model: in evaluation mode.
        photos: at least one.
    """
    return encode_images(model, [model.image.encoder.preprocess(photo) for photo in photos])


@torch.inference_mode()
def encode_images(model: AladinModel, inputs: Sequence[ImageInput]) -> Encoding:
    """Encode what the image encoder's `preprocess` returned, `PHOTOS_AT_A_TIME`.

    Args:
        model: in evaluation mode.
        inputs: at least one photo; holding these takes far less memory than holding photos.
    """
    parts: list[Encoding] = []
    for start in range(0, len(inputs), PHOTOS_AT_A_TIME):
        batch = model.image.encoder.collate(inputs[start : start + PHOTOS_AT_A_TIME])
        parts.append(model.encode_images(to_device(batch, _device(model))))
    return concatenate(parts)


@torch.inference_mode()
def encode_texts(model: AladinModel, texts: Sequence[str], *, truncate: bool = False) -> Encoding:
    """Encode texts in one batch.

    Args:
        model: in evaluation mode.
        texts: at least one.
        truncate: cut texts that are too long instead of refusing them.

    Raises:
        InputError: a text is blank, or has no word that the tokenizer keeps.
        TextTooLongError: a text has more tokens than the network takes, and `truncate` is off.
    """
    batch = tokenize(model, texts, truncate=truncate)
    encoding = model.encode_texts(to_device(batch, _device(model)))
    # The network may be of a lower precision, for queries.
    return encoding._replace(embedding=encoding.embedding.float(), tokens=encoding.tokens.float())


def tokenize(model: AladinModel, texts: Sequence[str], *, truncate: bool = False) -> TextBatch:
    """Tokenise texts, refusing those that cannot be encoded; see `encode_texts`."""
    for text in texts:
        if not text.strip():
            raise InputError("the text is empty")
    batch = model.text.encoder.preprocess(texts, truncate=truncate)
    if not bool(batch.content.any(dim=1).all()):
        raise InputError("the text has no word that the tokenizer knows how to keep")
    return batch


def _device(model: AladinModel) -> torch.device:
    return next(model.parameters()).device

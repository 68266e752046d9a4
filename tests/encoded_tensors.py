"""The encodings of `aladin_network.inference` as tensors, to be compared with torch's own."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from PIL import Image

from aladin_network import inference
from aladin_network.inference import Network
from aladin_network.scoring.scores import EncodedBatch


def encode_photos(model: Network, photos: Sequence[Image.Image]) -> EncodedBatch:
    """Encode photos."""
    return EncodedBatch.of(inference.encode_photos(model, photos))


def encode_images(model: Network, inputs: Sequence[Any]) -> EncodedBatch:
    """Encode preprocessed photos."""
    return EncodedBatch.of(inference.encode_images(model, inputs))


def encode_texts(model: Network, texts: Sequence[str], *, truncate: bool = False) -> EncodedBatch:
    """Encode texts."""
    return EncodedBatch.of(inference.encode_texts(model, texts, truncate=truncate))


def encode_documents(model: Network, texts: Sequence[str]) -> EncodedBatch:
    """Encode documents."""
    return EncodedBatch.of(inference.encode_documents(model, texts))

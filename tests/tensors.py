"""The functions of `aladin_network.inference` with tensors, as the network's scores take them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from PIL import Image

from aladin_network import inference
from aladin_network.inference import Network
from aladin_network.scoring.scores import EncodedBatch


def encode_photos(model: Network, photos: Sequence[Image.Image]) -> EncodedBatch:
    return EncodedBatch.of(inference.encode_photos(model, photos))


def encode_images(model: Network, inputs: Sequence[Any]) -> EncodedBatch:
    return EncodedBatch.of(inference.encode_images(model, inputs))


def encode_texts(model: Network, texts: Sequence[str], **options: Any) -> EncodedBatch:
    return EncodedBatch.of(inference.encode_texts(model, texts, **options))


def encode_documents(model: Network, texts: Sequence[str]) -> EncodedBatch:
    return EncodedBatch.of(inference.encode_documents(model, texts))

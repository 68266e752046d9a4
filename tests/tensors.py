"""The functions of `aladin_network.inference` with tensors, as the network's scores take them.

Also photos for them, and a comparison of what they return.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
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


def random_photos(count: int) -> list[Image.Image]:
    """Photos of noise, each of another shape."""
    random = np.random.default_rng(1)
    sizes = [(40 + 9 * number, 64 - 7 * number, 3) for number in range(count)]
    return [Image.fromarray(random.integers(0, 256, size, dtype=np.uint8)) for size in sizes]


def assert_near(found: EncodedBatch, expected: EncodedBatch, most: float) -> None:
    """Compare the real tokens and the embeddings of two encodings, number by number."""
    mask = expected.mask
    assert torch.equal(found.mask, mask)
    assert (found.embedding - expected.embedding).abs().max() <= most
    assert (found.tokens[mask] - expected.tokens[mask]).abs().max() <= most

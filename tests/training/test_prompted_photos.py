"""Photos of a converted late-interaction network, encoded in chunks by a training step."""

from __future__ import annotations

from contextlib import nullcontext
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from aladin_network.checkpoint import load_checkpoint
from aladin_network.conversion.multivector import convert_multivector
from aladin_training.step import DetachedEncodings
from tests.aladin.conversion.late_interaction import FAMILIES

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning")


def test_chunks_give_the_gradients_of_the_whole_batch(tmp_path: Path) -> None:
    FAMILIES["colqwen2"](tmp_path / "source")
    convert_multivector(str(tmp_path / "source"), tmp_path / "model")
    model = load_checkpoint(tmp_path / "model", frozen={"text_encoder": False}).model
    random = np.random.default_rng(2)
    encoder = model.image.encoder
    photos = [
        encoder.preprocess(
            Image.fromarray(random.integers(0, 256, (30 + 9 * n, 50, 3), dtype=np.uint8))
        )
        for n in range(3)
    ]
    weight = model.text.encoder.network.embedding_proj_layer.weight
    gradients = []
    for chunk_size in (None, 2):
        step = DetachedEncodings(torch.device("cpu"), chunk_size, nullcontext)
        encoding = step(model.encode_images, encoder.collate(photos))
        weight.grad = None
        (encoding.embedding[:, 0].sum() + encoding.tokens[..., 1].sum()).backward()
        step.backward()
        gradients.append(weight.grad)
    assert float(gradients[0].abs().max()) > 0
    torch.testing.assert_close(gradients[0], gradients[1], atol=1e-5, rtol=1e-4)

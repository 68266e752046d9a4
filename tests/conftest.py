"""Fixtures that several folders of tests share."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import torch

from aladin.checkpoint import save_checkpoint
from aladin.config import (
    AlignmentHeadConfig,
    ImageEncoderConfig,
    ImagePreprocessing,
    MatchingHeadConfig,
    ModelConfig,
    TextEncoderConfig,
    TowerConfig,
    TrunkConfig,
)
from aladin.model import AladinModel, text_encoder_class

CAPTIONS = [
    "a small red circle above a striped blue square",
    "two dogs run on the green grass",
    "a man rides a motorcycle in the street",
    "the yellow star is left of a white triangle",
]


def tiny_config(**changes: object) -> ModelConfig:
    """A network of some thousand parameters: ViT on 32 x 32 px (4 x 4 regions), 2-layer BERT."""
    trunk = TrunkConfig(width=16, layers=1, heads=2, feedforward=32, dropout=0.1)
    parts: dict[str, object] = {
        "image_encoder": ImageEncoderConfig(
            architecture={
                "model_type": "vit",
                "hidden_size": 24,
                "num_hidden_layers": 1,
                "num_attention_heads": 2,
                "intermediate_size": 32,
                "image_size": 32,
                "patch_size": 8,
            },
            preprocessing=ImagePreprocessing(height_px=32, width_px=32),
        ),
        "text_encoder": TextEncoderConfig(
            architecture={
                "model_type": "bert",
                "hidden_size": 20,
                "num_hidden_layers": 1,
                "num_attention_heads": 2,
                "intermediate_size": 32,
                "max_position_embeddings": 64,
            },
            max_tokens=32,
        ),
        "image_tower": TowerConfig(trunk=trunk),
        "text_tower": TowerConfig(trunk=trunk),
        "alignment": AlignmentHeadConfig(dim=8),
        "matching": MatchingHeadConfig(layers=1, heads=2),
    }
    return ModelConfig(**(parts | changes))  # type: ignore[arg-type]


def tiny_model(**changes: object) -> AladinModel:
    """A random `tiny_config` network in evaluation mode, the same at every call."""
    torch.manual_seed(7)
    config = tiny_config(**changes)
    tokenizer = text_encoder_class(config).learn_tokenizer(CAPTIONS, 400)
    return AladinModel.create(config, tokenizer).eval()


@pytest.fixture(scope="session")
def build_tiny() -> Callable[..., AladinModel]:
    """`tiny_model`, to be called with what differs from `tiny_config`."""
    return tiny_model


@pytest.fixture(scope="session")
def tiny_checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A checkpoint of `tiny_model`."""
    folder = tmp_path_factory.mktemp("tiny") / "checkpoint"
    save_checkpoint(folder, tiny_model())
    return folder


@pytest.fixture(scope="session", autouse=True)
def one_thread() -> Iterator[None]:
    """Keep tiny computations on one thread: on a busy machine, waiting for a second costs more."""
    import faiss  # after torch: on GPU machines both bring CUDA, and torch's has to come first

    before = torch.get_num_threads(), faiss.omp_get_max_threads()
    torch.set_num_threads(1)
    faiss.omp_set_num_threads(1)
    yield
    torch.set_num_threads(before[0])
    faiss.omp_set_num_threads(before[1])

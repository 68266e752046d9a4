"""A small checkpoint folder in the layout of OSCAR and VinVL."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from transformers import BertConfig, BertModel

VOCABULARY = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "a", "dog", "runs", "red"]


@pytest.fixture
def oscar_folder(tmp_path: Path) -> Path:
    """Random weights: one layer of BERT and the embedding of regions of 10 numbers."""
    torch.manual_seed(2)
    config = BertConfig(
        vocab_size=len(VOCABULARY),
        hidden_size=16,
        num_hidden_layers=1,
        num_attention_heads=2,
        intermediate_size=20,
        max_position_embeddings=12,
    )
    bert = BertModel(config).state_dict()
    regions = {"img_embedding": torch.nn.Linear(10, 16), "LayerNorm": torch.nn.LayerNorm(16)}
    tensors = {f"bert.{name}": value for name, value in bert.items()}
    for part, module in regions.items():
        tensors |= {f"bert.{part}.{name}": each for name, each in module.state_dict().items()}
    tensors["classifier.weight"] = torch.zeros(2, 16)

    folder = tmp_path / "checkpoint-0132780"
    folder.mkdir()
    torch.save(tensors, folder / "pytorch_model.bin")
    own = {"img_feature_dim": 10, "img_feature_type": "frcnn", "use_img_layernorm": 1}
    (folder / "config.json").write_text(json.dumps(config.to_dict() | own))
    (folder / "vocab.txt").write_text("\n".join(VOCABULARY) + "\n")
    return folder

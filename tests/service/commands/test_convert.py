"""``aladin convert oscar`` and ``aladin convert aladin``; the conversions are tests/aladin's."""

from __future__ import annotations

import argparse
import json
from pathlib import Path

import pytest
import torch
from torch import nn
from transformers import BertConfig, BertModel

from aladin_network.checkpoint import load_checkpoint
from tests.service.commands.conftest import aladin, aladin_json

VOCABULARY = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "a", "dog", "runs", "red"]


@pytest.fixture
def oscar(tmp_path: Path) -> Path:
    """A folder as OSCAR and VinVL have it: one layer of BERT, regions of 10 numbers."""
    torch.manual_seed(2)
    config = BertConfig(
        vocab_size=len(VOCABULARY),
        hidden_size=16,
        num_hidden_layers=1,
        num_attention_heads=2,
        intermediate_size=20,
        max_position_embeddings=12,
    )
    regions = {"img_embedding": torch.nn.Linear(10, 16), "LayerNorm": torch.nn.LayerNorm(16)}
    parts = {"": BertModel(config), **{f"{name}.": module for name, module in regions.items()}}
    tensors = {
        f"bert.{part}{name}": value
        for part, module in parts.items()
        for name, value in module.state_dict().items()
    }
    tensors["classifier.weight"] = torch.zeros(2, 16)
    folder = tmp_path / "checkpoint-0132780"
    folder.mkdir()
    torch.save(tensors, folder / "pytorch_model.bin")
    own = {"img_feature_dim": 10, "img_feature_type": "frcnn", "use_img_layernorm": 1}
    (folder / "config.json").write_text(json.dumps(config.to_dict() | own))
    (folder / "vocab.txt").write_text("\n".join(VOCABULARY) + "\n")
    return folder


def test_oscars_checkpoint_is_made_and_every_tensor_is_named(
    oscar: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out, words = tmp_path / "out", ["--max-tokens", 10]
    monkeypatch.setenv("ALADIN_RUNTIME", "auto")
    made = aladin("convert", "oscar", oscar, "--out", out, *words)
    assert made.stdout == f"{out}\n"
    for said in ("classifier.weight", "2 x 16", "bert.pooler.dense.weight", "seed 0"):
        assert said in made.stderr
    (warning,) = [line for line in made.stderr.splitlines() if "WARNING" in line]
    assert f"{out} has no graphs, so that encoding needs torch: " in warning
    config = load_checkpoint(out).model.config
    assert (config.text_encoder.max_tokens, config.image_tower.aggregate) == (10, "encoder")

    again = tmp_path / "again"
    data = aladin_json("convert", "oscar", oscar, "--out", again, *words, "--seed", 3, "--official")
    assert (data["out"], data["seed"]) == (str(again), 3)
    tensors = torch.load(oscar / "pytorch_model.bin", weights_only=True)
    named = [each["source"] for each in (*data["taken"], *data["left"])]
    assert sorted(named) == sorted(tensors)
    assert all(each["reason"] for each in data["left"])
    model = load_checkpoint(again).model
    own = [*(each["target"] for each in data["taken"]), *data["new"]]
    assert sorted(own) == sorted(model.state_dict())
    assert model.config.alignment.official_trim


@pytest.mark.parametrize("lengths", [(10, 4), (7, 2)])
def test_aladins_checkpoint_has_the_lengths_of_its_training_or_of_the_options(
    oscar: Path, tmp_path: Path, lengths: tuple[int, int]
) -> None:
    tensors = torch.load(oscar / "pytorch_model.bin", weights_only=True)
    state = {f"img_txt_enc.oscar_model.{name}": each for name, each in tensors.items()}
    layer = nn.TransformerEncoderLayer(16, 4, 16)
    head = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False).state_dict()
    state |= {f"img_txt_enc.final_projection_net.{name}": each for name, each in head.items()}
    model = {"teran-layers": 0, "tern-layers": 2, "embed-size": 16, "dropout": 0.1}
    config = {"model": model, "training": {"alignment-mode": "MrSw"}}
    options = argparse.Namespace(max_seq_length=10, max_img_seq_length=4)
    release, out = tmp_path / "checkpoint.pth.tar", tmp_path / "out"
    torch.save({"epoch": 1, "model": state, "config": config, "opt": options}, release)
    words = ["--max-tokens", lengths[0], "--max-regions", lengths[1]] if lengths[0] < 10 else []
    data = aladin_json("convert", "aladin", release, "--oscar", oscar, "--out", out, *words)
    assert data["new"] == []
    reason = "number of the training that made it"
    assert {"source": "epoch", "reason": reason, "shape": None} in data["left"]
    made = load_checkpoint(out).model.config
    assert made.image_tower.aggregate == "first_region"
    assert (made.alignment.official_trim, made.alignment.empty_fill) == (True, "zero")
    assert made.text_encoder.max_tokens == lengths[0]

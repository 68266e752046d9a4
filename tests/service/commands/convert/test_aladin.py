"""``aladin convert aladin``."""

from __future__ import annotations

import argparse
import json
import os
from pathlib import Path

import pytest
import torch
from torch import nn
from typer.testing import CliRunner, Result

from aladin_network.checkpoint import load_checkpoint
from aladin_service.cli import app


class Command:
    """Runs a command when it is unpickled."""

    def __init__(self, command: str) -> None:
        self.command = command

    def __reduce__(self) -> tuple[object, ...]:
        return os.system, (self.command,)


def run(*words: object) -> Result:
    """Run ``aladin convert aladin`` with `words`."""
    return CliRunner().invoke(app, ["convert", "aladin", *map(str, words)])


@pytest.fixture
def release(oscar_folder: Path, tmp_path: Path) -> Path:
    """What the authors' training saves, of the network of `oscar_folder`."""
    oscar = torch.load(oscar_folder / "pytorch_model.bin", weights_only=True)
    state = {f"img_txt_enc.oscar_model.{name}": each for name, each in oscar.items()}
    layer = nn.TransformerEncoderLayer(16, 4, 16)
    head = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False).state_dict()
    state |= {f"img_txt_enc.final_projection_net.{name}": each for name, each in head.items()}
    model = {"teran-layers": 0, "tern-layers": 2, "embed-size": 16, "dropout": 0.1}
    config = {"model": model, "training": {"alignment-mode": "MrSw"}}
    options = argparse.Namespace(max_seq_length=10, max_img_seq_length=4)
    file = tmp_path / "checkpoint.pth.tar"
    torch.save({"epoch": 1, "model": state, "config": config, "opt": options}, file)
    return file


def test_the_checkpoint_computes_as_the_published_code(
    release: Path, oscar_folder: Path, tmp_path: Path
) -> None:
    result = run(release, "--oscar", oscar_folder, "--out", tmp_path / "out", "--json")
    assert result.exit_code == 0
    data = json.loads(result.stdout)
    assert data["new"] == []
    assert {"source": "epoch", "reason": "number of the training that made it", "shape": None} in (
        data["left"]
    )
    config = load_checkpoint(tmp_path / "out").model.config
    assert config.image_tower.aggregate == "first_region"
    assert (config.alignment.official_trim, config.alignment.empty_fill) == (True, "zero")
    assert config.text_encoder.max_tokens == 10


def test_lengths_can_be_given(release: Path, oscar_folder: Path, tmp_path: Path) -> None:
    lengths = ("--max-tokens", "7", "--max-regions", "2")
    result = run(release, "--oscar", oscar_folder, "--out", tmp_path / "out", *lengths)
    assert result.stdout == f"{tmp_path / 'out'}\n"
    assert load_checkpoint(tmp_path / "out").model.config.text_encoder.max_tokens == 7


def test_a_file_that_would_run_something_is_refused(oscar_folder: Path, tmp_path: Path) -> None:
    marker, file = tmp_path / "ran", tmp_path / "checkpoint.pth.tar"
    torch.save({"model": Command(f"touch {marker}")}, file)
    result = run(file, "--oscar", oscar_folder, "--out", tmp_path / "out")
    assert result.exit_code == 2
    assert result.stderr.startswith(f"error: {file}: refused: it holds posix.system")
    assert not marker.exists()

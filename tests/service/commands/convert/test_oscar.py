"""``aladin convert oscar``."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from typer.testing import CliRunner, Result

from aladin_network.checkpoint import load_checkpoint
from aladin_service.cli import app


def run(*words: object) -> Result:
    """Run ``aladin convert oscar`` with `words`."""
    return CliRunner().invoke(app, ["convert", "oscar", *map(str, words), "--max-tokens", "10"])


def test_stdout_has_the_folder_and_stderr_what_was_left(oscar_folder: Path, tmp_path: Path) -> None:
    result = run(oscar_folder, "--out", tmp_path / "out")
    assert result.exit_code == 0
    assert result.stdout == f"{tmp_path / 'out'}\n"
    for words in ("classifier.weight", "2 x 16", "bert.pooler.dense.weight", "seed 0"):
        assert words in result.stderr
    model = load_checkpoint(tmp_path / "out").model
    assert model.config.text_encoder.max_tokens == 10
    assert model.config.image_tower.aggregate == "encoder"


def test_a_network_of_regions_has_no_graphs(
    oscar_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ALADIN_RUNTIME", "auto")
    result = run(oscar_folder, "--out", tmp_path / "out")
    assert (result.exit_code, result.stdout) == (0, f"{tmp_path / 'out'}\n")
    told = [line for line in result.stderr.splitlines() if "WARNING" in line]
    assert len(told) == 1
    assert f"{tmp_path / 'out'} has no graphs, so that encoding needs torch: " in told[0]
    assert "regions" in told[0].rpartition(": ")[2]


def test_json_names_every_tensor(oscar_folder: Path, tmp_path: Path) -> None:
    result = run(oscar_folder, "--out", tmp_path / "out", "--json", "--seed", "3", "--official")
    data = json.loads(result.stdout)
    assert (data["out"], data["seed"]) == (str(tmp_path / "out"), 3)
    tensors = torch.load(oscar_folder / "pytorch_model.bin", weights_only=True)
    named = [each["source"] for each in (*data["taken"], *data["left"])]
    assert sorted(named) == sorted(tensors)
    assert all(each["reason"] for each in data["left"])
    own = load_checkpoint(tmp_path / "out").model.state_dict()
    assert sorted([*(each["target"] for each in data["taken"]), *data["new"]]) == sorted(own)
    assert load_checkpoint(tmp_path / "out").model.config.alignment.official_trim


def test_a_tensor_too_many_is_one_line_and_the_users_mistake(
    oscar_folder: Path, tmp_path: Path
) -> None:
    file = oscar_folder / "pytorch_model.bin"
    tensors = torch.load(file, weights_only=True)
    torch.save(tensors | {"bert.adapter.weight": torch.zeros(1)}, file)
    result = run(oscar_folder, "--out", tmp_path / "out")
    assert result.exit_code == 2
    assert result.stderr == f"error: {file}: unknown tensors: bert.adapter.weight\n"
    assert not (tmp_path / "out").exists()

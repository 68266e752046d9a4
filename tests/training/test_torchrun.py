"""The one command for several processes: ``torchrun -m aladin_service train``."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file
from torch import Tensor

from aladin_network.checkpoint import load_checkpoint
from aladin_training.config.recipe import load_recipe
from aladin_training.stages.run import run_recipe

ROOT = Path(__file__).parents[2]
# Each process draws dropout of its own, so a comparison has to do without.
OVERRIDES = [
    "model.image_tower.trunk.dropout=0",
    "model.text_tower.trunk.dropout=0",
    "model.matching.dropout=0",
    "model.text_encoder.architecture.hidden_dropout_prob=0",
    "model.text_encoder.architecture.attention_probs_dropout_prob=0",
]
TUNE = {
    "image_encoder": {"mode": "last", "layers": 1},
    "text_encoder": {"mode": "lora", "rank": 2, "checkpointing": True},
}
# A stage on tuned encoders, in chunks, and one that reads from the cache what they leave.
TUNED = [f"stage.joint.tune={json.dumps(TUNE)}", "stage.joint.chunk_size=3"]


def torchrun(recipe: Path, out: Path, *overrides: str) -> subprocess.CompletedProcess[str]:
    sets = [word for override in (*OVERRIDES, *overrides) for word in ("--set", override)]
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone"]
    command += ["--nproc-per-node", "2", "-m", "aladin_service", "train", str(recipe)]
    command += ["--out", str(out), *sets]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=900)


@pytest.mark.slow
@pytest.mark.parametrize("overrides", [[], TUNED], ids=["frozen", "tuned"])
def test_a_recipe_in_two_processes_ends_with_the_weights_of_one(
    overrides: list[str], recipe_path: Path, tmp_path: Path
) -> None:
    done = torchrun(recipe_path, tmp_path / "two", *overrides)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == [str(tmp_path / "two" / "checkpoint")]
    run_recipe(load_recipe(recipe_path, [*OVERRIDES, *overrides]), tmp_path / "one")
    ours, theirs = (
        load_file(tmp_path / name / "checkpoint" / "model.safetensors") for name in ("two", "one")
    )
    assert ours.keys() == theirs.keys()
    for name, value in theirs.items():
        parts = zip(_learnt(name, ours[name]), _learnt(name, value), strict=True)
        for our, their in parts:
            torch.testing.assert_close(our, their, rtol=0, atol=1e-6, msg=name)
    load_checkpoint(tmp_path / "two" / "checkpoint")
    log = (tmp_path / "two" / "stages" / "joint" / "log.jsonl").read_text().splitlines()
    assert len(log) == len(set(log))


def _learnt(name: str, value: Tensor) -> list[Tensor]:
    """Leave out biases of keys: a softmax does not see them, and Adam makes steps of rounding."""
    if name.endswith("k_proj.bias"):
        return []
    if not name.endswith("query_key_value.bias"):
        return [value]
    query, _, values = value.chunk(3)
    return [query, values]


@pytest.mark.slow
def test_a_mistake_ends_all_processes_with_one_error(recipe_path: Path, tmp_path: Path) -> None:
    done = torchrun(recipe_path, tmp_path / "out", "stage.student.batch_size=7")
    assert done.returncode != 0
    assert done.stderr.count("cannot be shared evenly by 2 processes") == 1
    assert not (tmp_path / "out").exists()

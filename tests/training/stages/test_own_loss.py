"""A researcher's own loss, from outside the package, in a run of a given number of steps."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import aladin_training.loop
from aladin_network.errors import ConfigError
from aladin_training.config.recipe import load_recipe
from aladin_training.losses import loss_class
from aladin_training.stage_files import read_curves, read_facts
from aladin_training.stages.run import run_recipe
from tests.training.runs import InterruptAfter, InterruptionError, assert_same_weights

SOURCE = """
import torch
from torch import nn

class Scaled(nn.Module):
    def __init__(self, scale=2.0):
        super().__init__()
        self.scale = nn.Parameter(torch.tensor(scale))

    def scalars(self):
        return {"scale": self.scale}

    def forward(self, scores, negatives):
        return (self.scale * scores).masked_fill(~negatives, 0).exp().mean()

not_a_loss = print
"""


@pytest.fixture(autouse=True)
def _outside(  # pyright: ignore[reportUnusedFunction]
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Install a package with one loss and an entry point, as pip would."""
    folder = tmp_path / "site"
    (folder / "mine-1.0.dist-info").mkdir(parents=True)
    (folder / "mine-1.0.dist-info" / "METADATA").write_text("Name: mine\nVersion: 1.0\n")
    (folder / "mine-1.0.dist-info" / "entry_points.txt").write_text(
        "[aladin_training.losses]\nscaled = my_losses:Scaled\nbroken = my_losses:not_a_loss\n"
    )
    (folder / "my_losses.py").write_text(SOURCE)
    monkeypatch.syspath_prepend(folder)


@pytest.mark.parametrize("name", ["scaled", "my_losses:Scaled"])
def test_a_loss_of_another_package_is_found(name: str) -> None:
    assert loss_class(name).__name__ == "Scaled"


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("scald", "expected MODULE:CLASS or one of .*'scaled', 'score_regression'"),
        ("my_losses:Other", "my_losses:Other: cannot be imported"),
        ("no_such_module:Loss", "cannot be imported"),
        ("broken", "my_losses:not_a_loss: expected a subclass of torch.nn.Module"),
    ],
)
def test_what_is_no_loss_is_refused(name: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        loss_class(name)


def test_it_trains_for_a_number_of_steps_and_its_numbers_are_logged(
    recipe_path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(aladin_training.loop, "LOG_EVERY_STEPS", 1)
    monkeypatch.setattr(aladin_training.loop, "SAVE_EVERY_S", 0.0)
    own = {"loss": "scaled", "options": {"scale": 3.0}}
    settings = ["final=joint", "*.max_steps=5", f"stage.joint.tasks.matching={json.dumps(own)}"]
    recipe = load_recipe(recipe_path, settings)
    run_recipe(recipe, tmp_path / "run")
    folder = tmp_path / "run" / "stages" / "joint"
    assert read_facts(folder).steps == 5  # an epoch and two steps
    curves = read_curves(folder)
    scales = curves["matching_scale"]
    assert list(scales) == [1, 2, 3, 4, 5]
    assert 0 < abs(scales[1] - 3.0) < 0.1  # trained with the network
    assert scales[5] != scales[1]
    temperatures = curves["alignment_temperature"]
    assert abs(temperatures[1] - 0.2) < 0.01
    assert temperatures[5] != temperatures[1]
    assert list(curves["matching_rsum"]) == [3, 5]  # validated at an epoch's end, and at its own
    assert curves["lr"][5] < curves["lr"][1] / 4  # the schedule spans the steps
    with pytest.raises(InterruptionError):
        run_recipe(recipe, tmp_path / "broken", progress=InterruptAfter(4))
    run_recipe(recipe, tmp_path / "broken", resume=True)
    assert_same_weights(tmp_path / "run", tmp_path / "broken")

"""Training on a CUDA card takes the steps that the processor takes; skipped where there is none."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from aladin_network.encoders.base import Features
from aladin_network.types import NullProgress
from aladin_training.batches.feature_cache import FeatureCache, ResidentFeatures, fastest_source
from aladin_training.comparison.compare import compare
from aladin_training.comparison.plan import ComparisonPlan
from aladin_training.comparison.step_time import RandomSources
from aladin_training.config.recipe import Recipe, load_recipe
from aladin_training.stages.preparation import prepare_run
from aladin_training.stages.setup import set_up_stage

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA card here")

OBJECTIVES = {
    "triplet": {"matching": {"loss": "triplet"}},
    "infonce": {"matching": {"loss": "infonce", "options": {"learnable": True}}},
    "goal": {"matching": {"loss": "gradient", "options": {"pair_weight": "sig_ms"}}},
    "imc": {"matching": {"loss": "triplet"}, "intra_modal": {"loss": "intra_modal"}},
    "alignment": {"alignment": {"loss": "triplet"}, "distillation": {"loss": "listnet"}},
}


@pytest.fixture
def frozen(recipe_path: Path, tmp_path: Path) -> Callable[..., Recipe]:
    """The small recipe with frozen encoders and without dropout, whose draws differ."""
    settings = (
        f"data.cache={tmp_path / 'cache'}",
        "model.image_encoder.frozen=true",
        "model.text_encoder.frozen=true",
        "model.image_tower.trunk.input_dropout=0",
        "model.image_tower.trunk.dropout=0",
        "model.text_tower.trunk.input_dropout=0",
        "model.text_tower.trunk.dropout=0",
        "model.matching.dropout=0",
        "precision=float32",
    )
    return lambda *more: load_recipe(recipe_path, [*settings, *more])


@pytest.mark.parametrize("objective", OBJECTIVES)
def test_a_step_is_that_of_the_processor(
    objective: str,
    frozen: Callable[..., Recipe],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    recipe = frozen(f"final.tasks={json.dumps(OBJECTIVES[objective])}")
    weights: list[dict[str, torch.Tensor]] = []
    losses: list[float] = []
    for on_card in (True, False):
        with monkeypatch.context() as patch:
            patch.setattr(torch.cuda, "is_available", lambda on_card=on_card: on_card)
            prepared = prepare_run(recipe, NullProgress())
            sources = RandomSources(prepared.model, prepared.train_set)
            stage = recipe.final_stage
            trainer = set_up_stage(recipe, stage, prepared, tmp_path, sources, NullProgress())
            trainer.start_epoch(0)
            batch = next(trainer.epoch(0))
            assert (batch.images[0].is_cuda) == on_card  # gathered where the network is
            losses.append(trainer.train_step(batch).total.item())
        state = prepared.model.state_dict()
        weights.append({name: each.cpu() for name, each in state.items()})
    assert losses[0] == pytest.approx(losses[1], rel=1e-4)
    for name, each in weights[0].items():
        torch.testing.assert_close(each, weights[1][name], rtol=1e-3, atol=1e-4)


def test_features_are_gathered_on_the_card(tmp_path: Path) -> None:
    cache = FeatureCache(tmp_path, "encoder")
    mask = torch.arange(5) < torch.tensor([[3], [5], [1]])
    cache.add(["a", "b", "c"], Features(torch.randn(3, 5, 4), mask, mask))
    card = torch.device("cuda", 0)
    source = fastest_source(cache, ["a", "b", "c"], card)
    assert isinstance(source, ResidentFeatures)
    for found, expected in zip(source.get(["c", "a"]), cache.get(["c", "a"]), strict=True):
        assert found.device == card
        assert torch.equal(found.cpu(), expected)


def test_a_comparison_of_several_processes_shares_a_card(
    frozen: Callable[..., Recipe], tmp_path: Path
) -> None:
    short = ("stage.joint.epochs=1", "stage.student.epochs=1")
    recipes = tuple(frozen(f"name={name}", f"seed={n}", *short) for n, name in enumerate("ab"))
    plan = ComparisonPlan(recipes, "a", (0,), "val", tmp_path / "out")
    assert compare(plan, jobs=2, step_times=False).failures == {}

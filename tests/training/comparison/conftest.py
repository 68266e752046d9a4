"""Comparisons made by hand: finished runs whose every number is known."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType

import pytest
import torch
from safetensors.torch import save_file

from aladin_network.config import dump_config
from aladin_network.files import write_json
from aladin_network.scoring.metrics import Ranks
from aladin_network.scoring.separation import cross_retrieval_ranks, separation_of_queries
from aladin_training.comparison.evaluation import RunEvaluation, save_evaluation, score_histogram
from aladin_training.comparison.plan import ComparisonPlan, PlannedRun
from aladin_training.config.recipe import Recipe, load_recipe

FinishRun = Callable[..., RunEvaluation]


@pytest.fixture(scope="session")
def variant(recipe_path: Path) -> Callable[..., Recipe]:
    """Return the small recipe under another name, with some settings."""

    def build(name: str, *overrides: str) -> Recipe:
        return load_recipe(recipe_path, [f"name={name}", *overrides])

    return build


@pytest.fixture
def plan(variant: Callable[..., Recipe], tmp_path: Path) -> ComparisonPlan:
    """Three recipes with two seeds each; the second recipe's final stage is longer."""
    recipes = (variant("base"), variant("long", "stage.student.epochs=5"), variant("third"))
    return ComparisonPlan(recipes, "base", (0, 1), "val", tmp_path / "out")


@pytest.fixture
def finish_run() -> FinishRun:
    """Return a function that leaves a finished run with given ranks, as training would."""
    return _finish_run


def _finish_run(
    run: PlannedRun,
    text_ranks: Sequence[int],
    image_ranks: Sequence[int],
    *,
    split: str = "val",
    final_steps: int = 4,
    final_step_s: float = 60.0,
    curve: Sequence[float] = (100.0, 150.0),
    logged: Mapping[str, Sequence[float]] = MappingProxyType({}),
    ahead: float = 2.0,
    queries: str = "of four photos",
) -> RunEvaluation:
    """Write four photos' worth of results, with two captions each.

    `text_ranks` are those of the eight captions' photos by the matching score, `image_ranks` those
    of the photos' best captions. The stage "joint" took 6 steps, "student" took `final_steps` in
    `final_step_s`, with 30 s each for validation and batches; its log has the `curve` of rsums and
    whatever is `logged` after steps 2, 4, ... Positive pairs score `ahead` more; `queries` is the
    digest of the photos and captions.
    """
    write_json(run.folder / "recipe.json", dump_config(run.recipe))
    checkpoint = run.folder / "checkpoint"
    write_json(checkpoint / "config.json", {})
    save_file({"weight": torch.tensor([run.recipe.seed])}, checkpoint / "model.safetensors")
    for stage, steps, step_s in (("joint", 6, 120.0), ("student", final_steps, final_step_s)):
        folder = run.folder / "stages" / stage
        timing = {"steps": steps, "data_s": 30.0, "step_s": step_s, "validation_s": 30.0}
        write_json(folder / "timing.json", timing | {"parameters": 1234})
        direction = dict.fromkeys(("r1", "r5", "r10", "median_rank", "mean_rank"), 50.0)
        both = {"text_to_image": direction, "image_to_text": direction}
        write_json(folder / "validation.json", {"matching": both, "alignment": both})
        entries = [
            {"step": 2 * n + 2, "matching_rsum": rsum}
            | {name: values[n] for name, values in logged.items()}
            for n, rsum in enumerate(curve)
        ]
        lines = [json.dumps(each) for each in [{"step": 1, "loss": 3.0}, *entries]]
        (folder / "log.jsonl").write_text("\n".join(lines) + "\n")
    image_of_text = torch.tensor([0, 0, 1, 1, 2, 2, 3, 3])
    generator = torch.Generator().manual_seed(run.recipe.seed)
    scores = torch.randn(4, 8, generator=generator)
    scores[image_of_text, torch.arange(8)] += ahead
    ranks = Ranks(torch.tensor(text_ranks), torch.tensor(image_ranks))
    worst = Ranks(torch.full((8,), 20), torch.full((4,), 20))
    evaluation = RunEvaluation(
        model_id=_sha256(checkpoint / "model.safetensors"),
        split=split,
        ranks={"matching": ranks, "alignment": worst, "fused": ranks, "two_stage": ranks},
        mean_difference={"matching": 0.5 + run.recipe.seed, "alignment": 0.1},
        cross_rank={"matching": 3.0 + run.recipe.seed, "alignment": 40.0},
        histograms={
            "matching": score_histogram(scores, image_of_text),
            "alignment": score_histogram(scores, image_of_text),
        },
        image_of_text=image_of_text,
        cross_ranks={
            name: cross_retrieval_ranks(scores, image_of_text) for name in ("matching", "alignment")
        },
        separation={
            name: separation_of_queries(scores, image_of_text) for name in ("matching", "alignment")
        },
        queries=queries,
    )
    save_evaluation(run.folder, evaluation)
    return evaluation


def _sha256(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()

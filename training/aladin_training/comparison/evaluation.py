"""The evaluation of a finished run, stored beside it so that a report needs no network.

RUN/evaluation.json           the metrics, for reading; written last
RUN/evaluation.safetensors    the rank of every query and pair, what parts matches from others, and
                              the distribution of scores
"""

from __future__ import annotations

import json
import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor

from aladin_network.checkpoint import read_tensors, write_tensors
from aladin_network.checkpoint_files import WEIGHTS, read_model_id
from aladin_network.files import atomic_file, write_json
from aladin_network.scoring.metrics import (
    Ranks,
    RetrievalMetrics,
    summarize,
)
from aladin_network.scoring.separation import QueryScores, Separation
from aladin_training.comparison.plan import PlannedRun
from aladin_training.stages.run import is_run_of

BINS = 80

SCHEMA_VERSION = 1

_DIRECTIONS = ("text_to_image", "image_to_text")


class ScoreHistogram(NamedTuple):
    """Distribution of the scores of positive and of negative pairs (DBL figures 6 and 7).

    The mean of the negative pairs says little about retrieval, which the hardest of them decide.
    """

    low: float
    high: float
    positive: Tensor
    negative: Tensor
    hardest: Tensor

    def edges(self) -> list[float]:
        """Return the edges of all bins."""
        return torch.linspace(self.low, self.high, len(self.positive) + 1).tolist()


def score_histogram(scores: Tensor, image_of_text: Tensor) -> ScoreHistogram:
    """Count the scores of pairs from the lowest to the highest score."""
    scores = scores.detach().to("cpu", torch.float64, copy=True)
    low, high = float(scores.min()), float(scores.max())
    if high <= low:  # a network that scores all pairs alike
        high = low + 1.0
    place = image_of_text.cpu().unsqueeze(0)
    own = scores.gather(0, place).flatten()  # (texts,)
    positive, of_all = (
        torch.histc(values, BINS, min=low, max=high) for values in (own, scores.flatten())
    )
    negatives = scores.scatter_(0, place, -math.inf)
    # A query without a negative, of a single image, is in no bin.
    hardest = torch.cat([negatives.amax(dim=0), negatives.amax(dim=1)])
    counts = torch.histc(hardest[hardest.isfinite()], BINS, min=low, max=high)
    return ScoreHistogram(low, high, positive, of_all - positive, counts)


_NUMBERS, _ARRAYS = "evaluation.json", "evaluation.safetensors"


@dataclass(frozen=True)
class RunEvaluation:
    """The stored evaluation of a run, by name of the score.

    Beside those of the heads there are ranks of "fused", "two_stage", "two_stage_alignment" (the
    candidates ordered by the alignment alone, the papers' rule), and "ensemble" (the own score
    averaged over the target and its anchors), if anchors are others than moving averages. Ranks
    are those of `folds` contiguous blocks of photos, each ranked among itself; histograms, MD and
    cross ranks are those of the whole split. `queries` is the digest of its photos and captions.
    """

    model_id: str
    split: str
    ranks: dict[str, Ranks]
    mean_difference: dict[str, float]
    cross_rank: dict[str, float]
    histograms: dict[str, ScoreHistogram]
    image_of_text: Tensor
    cross_ranks: dict[str, Tensor]
    separation: dict[str, Separation]
    queries: str
    folds: int = 1

    def metrics(self) -> dict[str, RetrievalMetrics]:
        """Summarise the ranks by score name."""
        return {name: summarize(ranks) for name, ranks in self.ranks.items()}


def save_evaluation(folder: Path, evaluation: RunEvaluation) -> None:
    """Write an evaluation into a run's folder, replacing an older one."""
    # Copies: the format refuses tensors that share memory, which equal ranks may do.
    arrays = {"image_of_text": evaluation.image_of_text.clone()}
    for name, ranks in evaluation.ranks.items():
        for direction, of_queries in zip(_DIRECTIONS, ranks, strict=True):
            arrays[f"ranks.{name}.{direction}"] = of_queries.clone()
    for name, histogram in evaluation.histograms.items():
        arrays[f"histogram.{name}.positive"] = histogram.positive.clone()
        arrays[f"histogram.{name}.negative"] = histogram.negative.clone()
        arrays[f"histogram.{name}.hardest"] = histogram.hardest.clone()
    for name, ranks_of_pairs in evaluation.cross_ranks.items():
        arrays[f"cross_ranks.{name}"] = ranks_of_pairs.clone()
    for name, separation in evaluation.separation.items():
        for direction, of_queries in zip(_DIRECTIONS, separation, strict=True):
            arrays[f"separation.{name}.{direction}"] = torch.stack(of_queries)  # (3, queries)
    # The JSON file marks the arrays as valid, so it must never be the older file of the two.
    (folder / _NUMBERS).unlink(missing_ok=True)
    with atomic_file(folder / _ARRAYS) as partial:
        write_tensors(partial, arrays)
    numbers = {
        "schema_version": SCHEMA_VERSION,
        "model_id": evaluation.model_id,
        "split": evaluation.split,
        "folds": evaluation.folds,
        "queries": evaluation.queries,
        "metrics": {
            name: {direction: getattr(each, direction)._asdict() for direction in _DIRECTIONS}
            | {"rsum": each.rsum}
            for name, each in evaluation.metrics().items()
        },
        "mean_difference": evaluation.mean_difference,
        "cross_rank": evaluation.cross_rank,
        "histogram_range": {
            name: [each.low, each.high] for name, each in evaluation.histograms.items()
        },
    }
    write_json(folder / _NUMBERS, numbers)


def load_evaluation(folder: Path, split: str, folds: int = 1) -> RunEvaluation | None:
    """Read the evaluation of a run's present checkpoint."""
    try:
        numbers: dict[str, Any] = json.loads((folder / _NUMBERS).read_text(encoding="utf-8"))
    except FileNotFoundError:
        return None
    wanted = {"schema_version": SCHEMA_VERSION, "split": split, "folds": folds}
    if {key: numbers.get(key) for key in wanted} != wanted:
        return None
    weights = folder / "checkpoint"
    model_id = read_model_id(weights) if (weights / WEIGHTS).exists() else numbers["model_id"]
    if numbers["model_id"] != model_id:
        return None
    arrays = read_tensors(folder / _ARRAYS)
    return RunEvaluation(
        model_id=model_id,
        split=split,
        ranks={
            name: Ranks(*(arrays[f"ranks.{name}.{direction}"] for direction in _DIRECTIONS))
            for name in numbers["metrics"]
        },
        mean_difference=numbers["mean_difference"],
        cross_rank=numbers["cross_rank"],
        histograms={
            name: ScoreHistogram(
                low,
                high,
                arrays[f"histogram.{name}.positive"],
                arrays[f"histogram.{name}.negative"],
                arrays[f"histogram.{name}.hardest"],
            )
            for name, (low, high) in numbers["histogram_range"].items()
        },
        image_of_text=arrays["image_of_text"],
        folds=folds,
        cross_ranks={name: arrays[f"cross_ranks.{name}"] for name in numbers["cross_rank"]},
        separation={
            name: Separation(
                *(QueryScores(*arrays[f"separation.{name}.{each}"]) for each in _DIRECTIONS)
            )
            for name in numbers["mean_difference"]
        },
        queries=numbers["queries"],
    )


def is_trained(run: PlannedRun) -> bool:
    """Tell whether a run of exactly this recipe is finished."""
    finished = (run.folder / "checkpoint" / "config.json").exists()
    return finished and is_run_of(run.folder, run.recipe)


def finished_evaluation(run: PlannedRun, split: str) -> RunEvaluation | None:
    """Return the evaluation of a run, or None if it is not trained or not evaluated yet."""
    return load_evaluation(run.folder, split, run.folds) if is_trained(run) else None


def is_evaluated(evaluation: RunEvaluation | None, *, correct: bool) -> bool:
    """Tell whether an evaluation has all that is to be reported."""
    return evaluation is not None and (not correct or "corrected_fused" in evaluation.ranks)

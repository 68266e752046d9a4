"""How the scores of the right pairs and of all others are spread (DBL figures 6 and 7).

What a finished run is worth on a split, stored beside it so that a report needs no network.

RUN/evaluation.json           the numbers, for reading; written last
RUN/evaluation.safetensors    the rank of every query and the distribution of scores
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor

from aladin_network.checkpoint import load_checkpoint, read_model_id, read_tensors, write_tensors
from aladin_network.files import atomic_file, write_json
from aladin_network.scoring.metrics import Ranks, RetrievalMetrics, summarize
from aladin_network.scoring.separation import summarize_cross_ranks
from aladin_network.types import Progress
from aladin_training.batches.dataset import PairDataset
from aladin_training.batches.items import PLAIN
from aladin_training.comparison.plan import PlannedRun
from aladin_training.data import read_records
from aladin_training.evaluation import ExhaustiveEvaluation, evaluate_encodings

BINS = 80


class ScoreHistogram(NamedTuple):
    """Counts of scores in bins of equal width.

    Attributes:
        low: left edge of the first bin.
        high: right edge of the last bin.
        positive: pairs of a photo and one of its captions in each bin, (bins,) float64.
        negative: all other pairs, (bins,) float64.
    """

    low: float
    high: float
    positive: Tensor
    negative: Tensor

    def edges(self) -> list[float]:
        """Return the edges of all bins."""
        return torch.linspace(self.low, self.high, len(self.positive) + 1).tolist()


def score_histogram(scores: Tensor, image_of_text: Tensor) -> ScoreHistogram:
    """Count the scores of positive and negative pairs from the lowest to the highest score.

    Args:
        scores: ``scores[image, text]``, float.
        image_of_text: row of each text's image, (texts,).
    """
    scores = scores.detach().double().cpu()
    low, high = float(scores.min()), float(scores.max())
    if high <= low:  # a network that says the same of all pairs
        high = low + 1.0
    own = scores.gather(0, image_of_text.cpu().unsqueeze(0)).flatten()  # (texts,)
    positive, of_all = (
        torch.histc(values, BINS, min=low, max=high) for values in (own, scores.flatten())
    )
    return ScoreHistogram(low, high, positive, of_all - positive)


SCHEMA_VERSION = 1
_NUMBERS, _ARRAYS = "evaluation.json", "evaluation.safetensors"
_DIRECTIONS = ("text_to_image", "image_to_text")


@dataclass(frozen=True)
class RunEvaluation:
    """The stored evaluation of a run.

    Attributes:
        model_id: sha256 of the weights that were evaluated.
        split: of the data.
        ranks: by score name: matching, alignment, fused, two_stage and, where there is one,
            attention.
        mean_difference: DBL's MD by score name.
        cross_rank: median of AOQ's cross-retrieval rank over positive pairs, by score name.
        histograms: by score name.
        image_of_text: row of each text's image, (texts,) int64.
    """

    model_id: str
    split: str
    ranks: dict[str, Ranks]
    mean_difference: dict[str, float]
    cross_rank: dict[str, float]
    histograms: dict[str, ScoreHistogram]
    image_of_text: Tensor

    def metrics(self) -> dict[str, RetrievalMetrics]:
        """Summarise the ranks by score name."""
        return {name: summarize(ranks) for name, ranks in self.ranks.items()}


def evaluate_run(run: PlannedRun, split: str, progress: Progress) -> RunEvaluation:
    """Evaluate a finished run in float32, as it would be served.

    Args:
        run: with a checkpoint.
        split: of the recipe's data.
        progress: told of photos and captions.

    Raises:
        CheckpointError: the checkpoint cannot be read.
        DataError: the split has no photo, or none that can be decoded.
    """
    checkpoint = load_checkpoint(run.folder / "checkpoint")
    data = run.recipe.data
    dataset = PairDataset.prepare(
        read_records(Path(data.source).expanduser(), split),
        checkpoint.model,
        Path(data.cache).expanduser(),
        views=[PLAIN],
        precision=run.recipe.precision,
        progress=progress,
    )
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    model = checkpoint.model.to(device)
    images, texts = dataset.encode(model)
    evaluation = evaluate_encodings(
        model, checkpoint.fusion, images, texts, dataset.image_of_text.to(device)
    )
    return _condense(evaluation, checkpoint.model_id, split)


def _condense(evaluation: ExhaustiveEvaluation, model_id: str, split: str) -> RunEvaluation:
    image_of_text = evaluation.image_of_text.cpu()
    return RunEvaluation(
        model_id=model_id,
        split=split,
        ranks={
            name: Ranks(*(of_queries.cpu() for of_queries in ranks))
            for name, ranks in evaluation.ranks.items()
        },
        mean_difference=dict(evaluation.mean_difference),
        cross_rank={
            name: summarize_cross_ranks(ranks).median
            for name, ranks in evaluation.cross_ranks.items()
        },
        histograms={
            name: score_histogram(scores, image_of_text)
            for name, scores in evaluation.scores.items()
        },
        image_of_text=image_of_text,
    )


def save_evaluation(folder: Path, evaluation: RunEvaluation) -> None:
    """Write an evaluation into a run's folder.

    Args:
        folder: of the run.
        evaluation: replaces what is there.
    """
    # Copies: the format refuses tensors that share memory, as equal ranks well may.
    arrays = {"image_of_text": evaluation.image_of_text.clone()}
    for name, ranks in evaluation.ranks.items():
        for direction, of_queries in zip(_DIRECTIONS, ranks, strict=True):
            arrays[f"ranks.{name}.{direction}"] = of_queries.clone()
    for name, histogram in evaluation.histograms.items():
        arrays[f"histogram.{name}.positive"] = histogram.positive.clone()
        arrays[f"histogram.{name}.negative"] = histogram.negative.clone()
    # The numbers vouch for the arrays, so they must never be the older ones of the two.
    (folder / _NUMBERS).unlink(missing_ok=True)
    with atomic_file(folder / _ARRAYS) as partial:
        write_tensors(partial, arrays)
    numbers = {
        "schema_version": SCHEMA_VERSION,
        "model_id": evaluation.model_id,
        "split": evaluation.split,
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


def load_evaluation(folder: Path, split: str) -> RunEvaluation | None:
    """Read the evaluation of a run's present checkpoint.

    Args:
        folder: of the run.
        split: that was evaluated.

    Returns:
        None if there is no evaluation, or only one of other weights, of another split or of
        another version: it has to be made again.
    """
    try:
        numbers: dict[str, Any] = json.loads((folder / _NUMBERS).read_text(encoding="utf-8"))
    except FileNotFoundError:
        return None
    model_id = read_model_id(folder / "checkpoint")
    wanted = {"schema_version": SCHEMA_VERSION, "model_id": model_id, "split": split}
    if {key: numbers.get(key) for key in wanted} != wanted:
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
            )
            for name, (low, high) in numbers["histogram_range"].items()
        },
        image_of_text=arrays["image_of_text"],
    )

"""How well a network, and the index built with it, find what belongs together."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from aladin.checkpoint import load_checkpoint
from aladin.errors import InputError
from aladin.metrics import Interval, RetrievalMetrics, paired_bootstrap
from aladin.progress import Progress
from aladin.separation import RankSummary, summarize_cross_ranks
from index.evaluation import EvaluationText, ServedEvaluation, evaluate_index
from index.reader import open_index
from index.searcher import TwoStageSearcher
from training.data import Record, read_records
from training.evaluation import ExhaustiveEvaluation, evaluate_checkpoint


def evaluate_served(
    searcher: TwoStageSearcher,
    records: Sequence[Record],
    progress: Progress,
    fusion: float | None = None,
) -> ServedEvaluation:
    """Ask an index for the photo of every caption, and for the captions of every photo.

    Args:
        searcher: of an index of these photos and captions.
        records: photos with captions.
        progress: told of queries.
        fusion: weight of the alignment score; None: the one fitted on validation.

    Raises:
        InputError: a photo or a caption is not in the index.
        NoSuchTargetError: the index has no photos or no texts.
    """
    captions = [
        EvaluationText(f"{record.id}#{number}", caption, record.id)
        for record in records
        for number, caption in enumerate(record.captions)
    ]
    ids = [record.id for record in records]
    return evaluate_index(searcher, ids, captions, fusion=fusion, progress=progress)


class FoldedEvaluation(NamedTuple):
    """The mean over contiguous blocks of photos, each evaluated among itself.

    Attributes:
        folds: number of blocks.
        metrics: by score name.
    """

    folds: int
    metrics: dict[str, RetrievalMetrics]


@dataclass(frozen=True, kw_only=True)
class SystemEvaluation:
    """What `aladin evaluate` reports.

    Attributes:
        exhaustive: metrics by score name: those of the network's heads, and fused.
        mean_difference: by head, the mean score of pairs that belong together minus all others'.
        cross_ranks: by head, of the pairs that belong together in both directions at once.
        folded: the exhaustive metrics in blocks; None where not asked for.
        served: the two stages through the index; None without one.
        gain: rsum of the two stages minus that of matching; None without an index.
    """

    exhaustive: dict[str, RetrievalMetrics]
    mean_difference: dict[str, float]
    cross_ranks: dict[str, RankSummary]
    folded: FoldedEvaluation | None = None
    served: ServedEvaluation | None = None
    gain: Interval | None = None

    @property
    def metrics(self) -> dict[str, RetrievalMetrics]:
        """Metrics by system; with an index, ``two_stage`` is one of them."""
        if self.served is None:
            return self.exhaustive
        return self.exhaustive | {"two_stage": self.served.metrics}


def evaluate_system(
    checkpoint_folder: Path,
    data: Path,
    split: str | None,
    index: Path | None,
    progress: Progress,
    folds: int = 1,
) -> SystemEvaluation:
    """Evaluate a network on a data set, and the index that was built with it.

    Args:
        checkpoint_folder: of the network.
        data: photos with captions; a photo without one is found by none, but competes.
        split: of the data; None: all photos.
        index: of the same photos and captions; None: the network alone.
        progress: told of photos, captions and queries.
        folds: blocks for a further evaluation of the network; 0 or 1: the whole split only.

    Raises:
        AladinError: one of the three cannot be used, or they do not belong together.
    """
    checkpoint = load_checkpoint(checkpoint_folder)
    records = read_records(data, split, require_captions=False)
    if folds > len(records):
        raise InputError(f"folds: expected at most one a photo, {len(records)}, found {folds}")
    if index is None:
        return _report(evaluate_checkpoint(checkpoint, records, progress), None, folds)
    # Opened first: an index of another network is refused before the long work.
    with open_index(index, checkpoint=checkpoint) as opened:
        exhaustive = evaluate_checkpoint(checkpoint, records, progress)
        served = evaluate_served(TwoStageSearcher(opened), records, progress)
    return _report(exhaustive, served, folds)


def _report(
    exhaustive: ExhaustiveEvaluation, served: ServedEvaluation | None, folds: int
) -> SystemEvaluation:
    gain = None
    if served is not None:
        matching = exhaustive.ranks["matching"]
        gain = paired_bootstrap(served.ranks, matching, exhaustive.image_of_text)
    folded = None
    if folds > 1:
        folded = FoldedEvaluation(folds, _without_index(exhaustive.folded_metrics(folds)))
    return SystemEvaluation(
        exhaustive=_without_index(exhaustive.metrics()),
        mean_difference=exhaustive.mean_difference,
        cross_ranks={
            name: summarize_cross_ranks(ranks) for name, ranks in exhaustive.cross_ranks.items()
        },
        folded=folded,
        served=served,
        gain=gain,
    )


def _without_index(metrics: dict[str, RetrievalMetrics]) -> dict[str, RetrievalMetrics]:
    """Drop the two stages without an index: here that name means the two stages as served."""
    return {name: each for name, each in metrics.items() if name != "two_stage"}

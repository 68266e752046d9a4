"""Evaluates a network and the index built with it."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path
from typing import NamedTuple

from aladin_index.measure.curve import candidate_curve
from aladin_index.measure.curve_points import CandidateCurve
from aladin_index.measure.evaluate import (
    EvaluationQueries,
    EvaluationText,
    ServedEvaluation,
    evaluate_index,
    evaluation_queries,
)
from aladin_index.open import open_backend
from aladin_index.search.searcher import TwoStageSearcher
from aladin_network.checkpoint import load_checkpoint
from aladin_network.errors import InputError
from aladin_network.scoring.bootstrap import Interval, paired_bootstrap
from aladin_network.scoring.hub_correction import read_correction
from aladin_network.scoring.metrics import RetrievalMetrics
from aladin_network.scoring.separation import RankSummary, summarize_cross_ranks
from aladin_network.types import Progress
from aladin_service.settings import engine_options
from aladin_training.data import Record
from aladin_training.data.regions import RegionStore
from aladin_training.data.selection import read_split
from aladin_training.evaluation import ExhaustiveEvaluation, evaluate_checkpoint, usable_records


def evaluate_served(
    searcher: TwoStageSearcher,
    records: Sequence[Record],
    progress: Progress,
    fusion: float | None = None,
) -> ServedEvaluation:
    """Search an index for the photo of every caption, and for the captions of every photo."""
    queries = _queries(searcher, records, progress)
    return evaluate_index(searcher, queries, fusion=fusion, progress=progress)


def _queries(
    searcher: TwoStageSearcher, records: Sequence[Record], progress: Progress
) -> EvaluationQueries:
    captions = [
        EvaluationText(caption_id, caption, record.id)
        for record in records
        for caption_id, caption in zip(record.caption_ids, record.captions, strict=True)
    ]
    return evaluation_queries(searcher, [record.id for record in records], captions, progress)


class FoldedEvaluation(NamedTuple):
    """Mean over contiguous blocks of photos, each evaluated separately.

    Attributes:
        folds: Number of blocks.
        metrics: Metrics by score name.
    """

    folds: int
    metrics: dict[str, RetrievalMetrics]


@dataclass(frozen=True, kw_only=True)
class IndexEvaluation:
    """Evaluation of one generation of an index on a data set.

    Attributes:
        served: Evaluation of the two stages through the index.
        gain: Difference in rsum: the two stages minus matching alone.
        curve: Metrics against the number of candidates, or None if not requested.
    """

    served: ServedEvaluation
    gain: Interval
    curve: CandidateCurve | None


@dataclass(frozen=True, kw_only=True)
class SystemEvaluation:
    """What `aladin evaluate` reports.

    Attributes:
        exhaustive: Metrics by score name: those of the network's heads, and fused.
        mean_difference: Mean score of matching pairs minus that of all other pairs, by head.
        cross_ranks: Ranks of the matching pairs in both directions at once, by head.
        folded: The exhaustive metrics in blocks, or None if not requested.
        index: Evaluation of the index, or None without an index.
        correction_gain: Difference in rsum: fused with the hubness correction of the checkpoint
            minus fused without, or None if the checkpoint has no correction.
    """

    exhaustive: dict[str, RetrievalMetrics]
    mean_difference: dict[str, float]
    cross_ranks: dict[str, RankSummary]
    folded: FoldedEvaluation | None = None
    index: IndexEvaluation | None = None
    correction_gain: Interval | None = None

    @property
    def metrics(self) -> dict[str, RetrievalMetrics]:
        """Metrics by system; with an index, ``two_stage`` is one of them."""
        if self.index is None:
            return self.exhaustive
        return self.exhaustive | {"two_stage": self.index.served.metrics}


def evaluate_system(
    checkpoint_folder: Path,
    data: Path,
    split: str | None,
    index: Path | None,
    progress: Progress,
    folds: int = 1,
    curve_candidates: Sequence[int] | None = None,
    regions: RegionStore | None = None,
) -> SystemEvaluation:
    """Evaluate a network on a data set, and the index that was built with it.

    Args:
        checkpoint_folder: Checkpoint folder of the network.
        data: Photos with captions; a photo without captions is the right answer to no query, but
            competes.
        split: Split of the data, or None for all photos.
        index: Index of the same photos and captions, or None to evaluate the network alone.
        progress: Receives the progress over photos, captions and queries.
        folds: Number of blocks for a further evaluation of the network, or 0 or 1 for the whole
            split only.
        curve_candidates: Numbers of candidates of the index's curve, ascending, or None for no
            curve.
        regions: Regions of the photos, for a network that reads regions.

    Raises:
        AladinError: If one of the three cannot be used, or they do not belong together.
    """
    checkpoint = load_checkpoint(checkpoint_folder)
    records = read_split(
        data,
        split,
        checkpoint.provenance.recipe,
        require_captions=False,
        require_photos=regions is None,
    )
    records = usable_records(records, progress, regions)
    if folds > len(records):
        raise InputError(
            f"folds: expected at most {len(records)}, the number of photos, got {folds}"
        )
    correction = read_correction(checkpoint_folder, checkpoint.model_id)
    if index is None:
        exhaustive = evaluate_checkpoint(checkpoint, records, progress, regions, correction)
        return _report(exhaustive, folds)
    # Opened first, so that an index of another network is refused before the long work.
    engine = engine_options(index)
    with closing(open_backend(index, checkpoint=checkpoint, engine=engine)) as opened:
        searcher = TwoStageSearcher(opened)
        queries = _queries(searcher, records, progress)  # refuses records that the index lacks
        exhaustive = evaluate_checkpoint(checkpoint, records, progress, regions, correction)
        of_index = _evaluate_index(searcher, queries, exhaustive, curve_candidates, progress)
    return replace(_report(exhaustive, folds), index=of_index)


def _evaluate_index(
    searcher: TwoStageSearcher,
    queries: EvaluationQueries,
    exhaustive: ExhaustiveEvaluation,
    curve_candidates: Sequence[int] | None,
    progress: Progress,
) -> IndexEvaluation:
    served = evaluate_index(searcher, queries, progress=progress)
    matching = exhaustive.ranks["matching"]
    curve = None
    if curve_candidates is not None:
        curve = candidate_curve(searcher, queries, curve_candidates, progress)
    return IndexEvaluation(
        served=served,
        gain=paired_bootstrap(served.ranks, matching, exhaustive.image_of_text),
        curve=curve,
    )


def _report(exhaustive: ExhaustiveEvaluation, folds: int) -> SystemEvaluation:
    folded = None
    if folds > 1:
        folded = FoldedEvaluation(folds, _without_index(exhaustive.folded_metrics(folds)))
    ranks, gain = exhaustive.ranks, None
    if "corrected_fused" in ranks:
        both = ranks["corrected_fused"], ranks["fused"]
        gain = paired_bootstrap(*both, exhaustive.image_of_text)
    return SystemEvaluation(
        exhaustive=_without_index(exhaustive.metrics()),
        mean_difference=exhaustive.mean_difference,
        cross_ranks={
            name: summarize_cross_ranks(ranks) for name, ranks in exhaustive.cross_ranks.items()
        },
        folded=folded,
        correction_gain=gain,
    )


def _without_index(metrics: dict[str, RetrievalMetrics]) -> dict[str, RetrievalMetrics]:
    """Drop the two-stage metrics without an index: here the name means two stages as served."""
    return {name: each for name, each in metrics.items() if name != "two_stage"}

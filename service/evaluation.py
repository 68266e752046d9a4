"""How well a network, and the index built with it, find what belongs together."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from aladin.checkpoint import load_checkpoint
from aladin.metrics import Interval, RetrievalMetrics, paired_bootstrap
from aladin.progress import Progress
from index.evaluation import EvaluationText, ServedEvaluation, evaluate_index
from index.reader import open_index
from index.searcher import TwoStageSearcher
from training.data import Record, read_records
from training.evaluation import evaluate_checkpoint


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


@dataclass(frozen=True, kw_only=True)
class SystemEvaluation:
    """What `aladin evaluate` reports.

    Attributes:
        exhaustive: metrics by score name: matching, alignment, fused.
        served: the two stages through the index; None without one.
        gain: rsum of the two stages minus that of matching; None without an index.
    """

    exhaustive: dict[str, RetrievalMetrics]
    served: ServedEvaluation | None = None
    gain: Interval | None = None

    @property
    def metrics(self) -> dict[str, RetrievalMetrics]:
        """Metrics by system; with an index, ``two_stage`` is one of them."""
        if self.served is None:
            return self.exhaustive
        return self.exhaustive | {"two_stage": self.served.metrics}


def evaluate_system(
    checkpoint_folder: Path, data: Path, split: str | None, index: Path | None, progress: Progress
) -> SystemEvaluation:
    """Evaluate a network on a data set, and the index that was built with it.

    Args:
        checkpoint_folder: of the network.
        data: photos with captions.
        split: of the data; None: all photos.
        index: of the same photos and captions; None: the network alone.
        progress: told of photos, captions and queries.

    Raises:
        AladinError: one of the three cannot be used, or they do not belong together.
    """
    checkpoint = load_checkpoint(checkpoint_folder)
    records = read_records(data, split)
    if index is None:
        exhaustive = evaluate_checkpoint(checkpoint, records, progress)
        return SystemEvaluation(exhaustive=_without_two_stage(exhaustive.metrics()))
    # Opened first: an index of another network is refused before the long work.
    with open_index(index, checkpoint=checkpoint) as opened:
        exhaustive = evaluate_checkpoint(checkpoint, records, progress)
        served = evaluate_served(TwoStageSearcher(opened), records, progress)
    gain = paired_bootstrap(served.ranks, exhaustive.ranks["matching"], exhaustive.image_of_text)
    metrics = _without_two_stage(exhaustive.metrics())
    return SystemEvaluation(exhaustive=metrics, served=served, gain=gain)


def _without_two_stage(metrics: dict[str, RetrievalMetrics]) -> dict[str, RetrievalMetrics]:
    """Leave the two stages to an index: here the name stands for them as they are served."""
    return {name: each for name, each in metrics.items() if name != "two_stage"}

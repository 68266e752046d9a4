"""Fits the hubness correction of a checkpoint, and stores it with the checkpoint."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

from aladin_network.calibration.fitted_files import store_correction
from aladin_network.checkpoint import load_checkpoint
from aladin_network.scoring.hub_correction import CorrectionConstants
from aladin_network.scoring.hub_correction_fit import corrected_ranks
from aladin_network.scoring.metrics import RetrievalMetrics, summarize
from aladin_network.types import Progress
from aladin_training.correction import CorrectionRecords, correction_records, fit_to_records
from aladin_training.data.regions import RegionStore
from aladin_training.evaluation import encode_records, evaluate_scores, usable_records


class CorrectReport(NamedTuple):
    """Result of fitting a correction.

    Attributes:
        constants: Fitted constants.
        photos: Number of photos in the bank.
        texts: Number of captions in the bank.
        chosen_on: Number of photos that the constants were chosen on.
        metrics: Metrics on these photos by score, without and with the correction; better than on
            other photos.
        dropped_calibration: Whether probabilities were removed that uncorrected scores had been
            calibrated to.
    """

    constants: CorrectionConstants
    photos: int
    texts: int
    chosen_on: int
    metrics: dict[str, RetrievalMetrics]
    dropped_calibration: bool


def correct_system(
    checkpoint_folder: Path,
    data: Path,
    split: str | None,
    progress: Progress,
    regions: RegionStore | None = None,
) -> CorrectReport:
    """Encode a bank of training photos and captions, choose the constants, and store both."""
    checkpoint = load_checkpoint(checkpoint_folder)
    recipe = checkpoint.provenance.recipe
    records = correction_records(data, split, recipe, require_photos=regions is None)
    records = CorrectionRecords(
        usable_records(records.bank, progress, regions),
        usable_records(records.chosen_on, progress, regions),
        records.selection,
    )
    fitted = fit_to_records(
        checkpoint,
        data,
        records,
        lambda some: encode_records(checkpoint.model, some, progress, regions),
    )
    correction, scored = fitted
    plain = evaluate_scores(
        {"matching": scored.match, "alignment": scored.align},
        checkpoint.fusion,
        scored.image_of_text,
    )
    ranks = {name: plain.ranks[name] for name in ("matching", "alignment", "fused")}
    for name, each in corrected_ranks(correction, scored).items():
        ranks[f"corrected_{name}"] = each
    dropped_calibration = store_correction(checkpoint_folder, correction)
    return CorrectReport(
        constants=correction.constants,
        photos=len(correction.images.embeddings),
        texts=len(correction.texts.embeddings),
        chosen_on=len(records.chosen_on),
        metrics={name: summarize(each) for name, each in ranks.items()},
        dropped_calibration=dropped_calibration,
    )

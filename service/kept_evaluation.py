"""Keeps what `aladin evaluate` measured with the index that it was measured on."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

from aladin.errors import SearchIndexError
from index.evaluations import Evaluation, store_evaluation
from index.remote.location import location_of
from service.evaluation import IndexEvaluation, SystemEvaluation


def keep_evaluation(
    index: Path,
    data: Path,
    split: str | None,
    evaluation: SystemEvaluation,
    of_index: IndexEvaluation,
    figures: dict[str, Any],
    curve: dict[str, Any] | None,
) -> str | None:
    """Store an evaluation with its index, where that can be written.

    Args:
        index: folder.
        data: that was evaluated.
        split: of the data; None: all of it.
        evaluation: of the network.
        of_index: of the generation.
        figures: as ``--json`` prints them, without the curve.
        curve: as ``--json`` prints it; None: not measured.

    Returns:
        Why it is not kept: what was measured is worth having all the same. None: it is kept.
    """
    if location_of(index) is not None:
        return "the evaluation is not kept with the index: an engine keeps that"
    try:
        store_evaluation(
            index,
            Evaluation(
                generation=of_index.generation,
                model_id=evaluation.model_id,
                data=str(data),
                split=split,
                images=of_index.images,
                texts=of_index.texts,
                measured_at_s=time.time(),
                figures=figures,
                curve=curve,
            ),
        )
    except SearchIndexError as error:
        return f"the evaluation is not kept with the index: {error}"
    return None

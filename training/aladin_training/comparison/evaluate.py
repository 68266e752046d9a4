"""Evaluates a finished run of a comparison: every score of its network, and of its branches."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import torch
from torch import Tensor

from aladin_network.calibration.fitted_files import store_correction
from aladin_network.checkpoint import load_checkpoint
from aladin_network.config import dump_config
from aladin_network.errors import DataError, InputError
from aladin_network.scoring.fusion import Fusion
from aladin_network.scoring.hub_correction import read_correction
from aladin_network.scoring.metrics import (
    Ranks,
    ranks_in_blocks,
    retrieval_ranks,
)
from aladin_network.scoring.separation import separation_of_queries, summarize_cross_ranks
from aladin_network.scoring.two_stages import two_stage_ranks
from aladin_network.types import Progress
from aladin_training.batches.dataset import PairDataset
from aladin_training.batches.items import PLAIN
from aladin_training.comparison.evaluation import (
    RunEvaluation,
    finished_evaluation,
    score_histogram,
)
from aladin_training.comparison.plan import PlannedRun
from aladin_training.correction import correction_records, fit_to_records
from aladin_training.data import Record
from aladin_training.data.records import records_digest
from aladin_training.data.selection import SELECTION, read_split
from aladin_training.evaluation import (
    ExhaustiveEvaluation,
    evaluate_encodings,
    mean_scores,
    rank_scores,
    score_encodings,
)
from aladin_training.stage_files import branch_checkpoints
from aladin_training.stages.preparation import open_recipe_regions
from aladin_training.stages.set_memory import SetMemory


def evaluate_run(
    run: PlannedRun,
    split: str,
    progress: Progress,
    *,
    correct: bool = False,
    memory: SetMemory | None = None,
) -> RunEvaluation:
    """Evaluate a finished run in float32, as it would be served.

    A hubness correction that the checkpoint has is evaluated beside the plain scores.
    """
    folder, data = run.folder / "checkpoint", run.recipe.data
    checkpoint = load_checkpoint(folder)
    source, recipe = Path(data.source).expanduser(), checkpoint.provenance.recipe
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    model = checkpoint.model.to(device)
    known, regions = memory or SetMemory(), open_recipe_regions(run.recipe)
    # A network of regions needs no photos.
    need = {"require_photos": regions is None}

    def prepared(records: Sequence[Record], part: str, among: SetMemory) -> PairDataset:
        return among.pairs(part, records, run.recipe, model, [PLAIN], progress, regions)

    correction = read_correction(folder, checkpoint.model_id)
    if correct and correction is None and checkpoint.alignment_trained:
        records = correction_records(source, data.train_split, recipe, **need)
        correction = fit_to_records(
            checkpoint,
            source,
            records,
            lambda some: prepared(some, "some", SetMemory()).encode(model),  # each time others
        ).correction
        store_correction(folder, correction)
    records = evaluated_records(run, split, known)
    dataset = prepared(records, f"evaluated:{split}", known)
    images, texts = dataset.encode(model)
    image_of_text = dataset.image_of_text.to(device)
    evaluation = evaluate_encodings(
        model, checkpoint.fusion, images, texts, image_of_text, correction
    )
    condensed = _condense(
        evaluation, checkpoint.model_id, split, run.folds, records_digest(records)
    )
    branches = [load_checkpoint(each, device).model for each in _branches(run)]
    if branches:
        others = [score_encodings(each, *dataset.encode(each)) for each in branches]
        scores = mean_scores([evaluation.scores, *others])[run.recipe.own_score]
        found = ranks_in_blocks(
            lambda block: {
                "ensemble": retrieval_ranks(scores[block.images, block.texts], block.image_of_text)
            },
            len(scores),
            image_of_text,
            run.folds,
        )
        condensed.ranks.update(_on_processor(found))
    return condensed


def evaluated_records(run: PlannedRun, split: str, memory: SetMemory) -> Sequence[Record]:
    """Read the photos that a run is evaluated on; before it is trained, too, to miss none later."""
    data = run.recipe.data

    def read() -> Sequence[Record]:
        source, recipe = Path(data.source).expanduser(), json.dumps(dump_config(run.recipe))
        return read_split(source, split, recipe, require_photos=data.regions is None)

    return memory.recall(f"evaluated:{split}:{data!r}", read)


def check_queries(runs: Sequence[PlannedRun], split: str) -> None:
    """Refuse to report finished runs beside others if their data set has changed meanwhile.

    Data sets that cannot be read are not compared.
    """
    present: dict[str, str | None] = {}
    for run in runs:
        evaluation = finished_evaluation(run, split)
        if split == SELECTION or evaluation is None:
            continue
        data = run.recipe.data
        key = repr((data.source, data.regions is None, data.folds, data.fold))
        if key not in present:
            try:
                present[key] = records_digest(evaluated_records(run, split, SetMemory()))
            except DataError:
                present[key] = None
        if present[key] not in (None, evaluation.queries):
            raise InputError(
                f"{run.folder}: was evaluated on other photos or captions than split {split!r} of "
                f"{data.source} has now; compare in another --out, or restore the data"
            )


def _branches(run: PlannedRun) -> list[Path]:
    """Return the checkpoints of a run's other branches: its offline or its online anchors."""
    stage, stages = run.recipe.final_stage, run.folder / "stages"
    if stage.anchors is None or stage.anchors.scenario == "momentum":
        return []
    if stage.anchors.scenario == "online":
        return branch_checkpoints(stages / stage.name)
    own = [stages / name / "checkpoint" for name in stage.anchors.stages]
    return [*own, *(Path(folder).expanduser() for folder in stage.anchors.checkpoints)]


def _condense(
    evaluation: ExhaustiveEvaluation, model_id: str, split: str, folds: int, queries: str
) -> RunEvaluation:
    image_of_text = evaluation.image_of_text.cpu()
    scores, rows = evaluation.scores, evaluation.image_of_text
    ranks_by_score = evaluation.ranks | _by_alignment(scores, rows)
    if folds > 1:
        ranks_by_score = ranks_in_blocks(
            lambda block: (
                rank_scores(block.inside(scores), evaluation.fusion, block.image_of_text)
                | _by_alignment(block.inside(scores), block.image_of_text)
            ),
            len(evaluation.matching_scores),
            rows,
            folds,
        )
    return RunEvaluation(
        model_id=model_id,
        split=split,
        ranks=_on_processor(ranks_by_score),
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
        folds=folds,
        cross_ranks={name: ranks.cpu() for name, ranks in evaluation.cross_ranks.items()},
        separation={
            name: separation_of_queries(scores.cpu(), image_of_text)
            for name, scores in evaluation.scores.items()
        },
        queries=queries,
    )


def _by_alignment(scores: dict[str, Tensor], image_of_text: Tensor) -> dict[str, Ranks]:
    """Rank by the papers' two stages: candidates by the matching, in the alignment's order."""
    matching, alignment = scores["matching"], scores["alignment"]
    ranks = two_stage_ranks(matching, alignment, Fusion(), image_of_text)  # of weight 1
    return {"two_stage_alignment": ranks}


def _on_processor(ranks: dict[str, Ranks]) -> dict[str, Ranks]:
    return {name: Ranks(*(of_queries.cpu() for of_queries in each)) for name, each in ranks.items()}

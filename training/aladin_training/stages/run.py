"""Run a recipe: prepare the data, train the stages in order, leave checkpoints.

OUT/recipe.json               the recipe with its overrides
OUT/stages/NAME/              state, log, curves, TensorBoard events, checkpoint, metrics;
                              checkpoints of online anchors in branches/NUMBER/
OUT/checkpoint/               the checkpoint of the final stage
"""

from __future__ import annotations

import contextlib
import json
import logging
import subprocess
from pathlib import Path
from typing import NamedTuple

from torch import Tensor

from aladin_network.checkpoint import read_tensors, save_checkpoint
from aladin_network.checkpoint_files import Provenance, read_model_id
from aladin_network.config import dump_config, parse_config
from aladin_network.errors import CheckpointError, ConfigError
from aladin_network.files import atomic_folder, write_json
from aladin_network.heads.trained import read_alignment_trained, trains_alignment
from aladin_network.model import AladinModel
from aladin_network.photos.formats import PHOTO_SUFFIXES
from aladin_network.scoring.metrics import RetrievalMetrics
from aladin_network.scoring.two_stages import fit_fusion
from aladin_network.types import NullProgress, Progress
from aladin_training.adapters.parts import end_fine_tuning, merge_fine_tuned
from aladin_training.batches.dataset import PairDataset
from aladin_training.config.recipe import Recipe
from aladin_training.config.stage import StageConfig
from aladin_training.evaluation import evaluate_scores, score_encodings
from aladin_training.loop import StageTrainer
from aladin_training.parallel.distributed import (
    broadcast_value,
    check_even_shares,
    is_main_process,
    main_process_first,
    wait_for_all,
)
from aladin_training.parallel.threads import torch_threads
from aladin_training.stage_files import (
    branch_checkpoint,
    is_finished,
    read_validation,
    write_results,
)
from aladin_training.stages.preparation import PreparedRun, prepare_run, with_recorded_ids
from aladin_training.stages.set_memory import SetMemory
from aladin_training.stages.setup import set_up_stage
from aladin_training.stages.sources import RunSources, StageStore, link_tree

logger = logging.getLogger(__name__)

_STAGES = "stages"
_RECIPE = "recipe.json"


class RunResult(NamedTuple):
    """The final stage's checkpoint, and metrics on the validation split by stage and score."""

    checkpoint: Path
    validation: dict[str, dict[str, RetrievalMetrics]]


def run_recipe(
    recipe: Recipe,
    out: Path,
    *,
    resume: bool = False,
    progress: Progress | None = None,
    shared: Path | None = None,
    memory: SetMemory | None = None,
) -> RunResult:
    """Train all stages of a recipe.

    Args:
        recipe: Recipe to train.
        out: Folder of the run.
        resume: Continue an interrupted run; finished stages are not trained again.
        progress: Receives photos, captions and steps.
        shared: Folder of finished stages, copied instead of trained if their history is equal.
        memory: Data sets of earlier runs of this process, see `prepare_run`.

    Raises:
        ConfigError: If `out` holds a run and `resume` is off, another recipe's, or foreign files.
        CheckpointError: If the checkpoint that the recipe starts from cannot be read.
        DataError: If the data cannot be used.
        NonFiniteLossError: If training diverges.
    """
    progress = progress or NullProgress()
    recipe = with_recorded_ids(recipe)
    for stage in recipe.stage:
        check_even_shares(stage.batch_size)
    # Everything is checked before the first stage is trained, and the folder is written only
    # after recipe and data have been read: an error leaves no folder behind.
    with main_process_first():
        prepared = prepare_run(recipe, progress, lambda: _claim(out, recipe, resume), memory)
    store = None
    if shared is not None and is_main_process():
        store = StageStore(shared, recipe, prepared.train_set.digest)
    validation: dict[str, dict[str, RetrievalMetrics]] = {}
    with torch_threads(recipe.threads):
        for number, stage in enumerate(recipe.stage):
            folder = out / _STAGES / stage.name
            with store.lock(number) if store is not None else contextlib.nullcontext():
                if not broadcast_value(is_finished(folder) or _is_shared(store, number, folder)):
                    _train_stage(recipe, number, prepared, folder, progress)
                    if store is not None:
                        store.add(number, folder)
            validation[stage.name] = read_validation(folder)
            _log_rsums(stage.name, validation[stage.name])
    return RunResult(_copy_final_checkpoint(recipe, out), validation)


def is_run_of(out: Path, recipe: Recipe) -> bool:
    """Tell whether a folder holds a run of exactly this recipe, finished or not."""
    try:
        text = (out / _RECIPE).read_text(encoding="utf-8")
    except FileNotFoundError:
        return False
    try:
        known = parse_config(Recipe, json.loads(text), _RECIPE).without_unneeded()
    except (ValueError, ConfigError):
        return False
    # Both are parsed, so that tuples compare equal to lists, and keys that are newer than the run
    # have their defaults.
    return known == parse_config(Recipe, dump_config(with_recorded_ids(recipe)), _RECIPE)


def _claim(out: Path, recipe: Recipe, resume: bool) -> None:
    """Check that a folder may hold this run, and write the recipe; the first process does so."""
    if not is_main_process():
        return
    if (out / _RECIPE).exists():
        if not resume:
            raise ConfigError(
                f"{out} holds a run; `aladin train --resume` continues it, or choose another folder"
            )
        if not is_run_of(out, recipe):
            raise ConfigError(f"{out} holds a run of another recipe; choose another folder")
    else:
        _refuse_foreign(out)
        write_json(out / _RECIPE, dump_config(recipe))


def _refuse_foreign(out: Path) -> None:
    """Refuse a folder of photos, an index and the like; logs, notes and stages may be there."""
    for path in sorted(out.iterdir()) if out.is_dir() else ():
        is_photo = path.suffix.lower() in PHOTO_SUFFIXES
        is_folder = path.is_dir() and path.name != _STAGES and not path.name.startswith(".")
        if is_photo or is_folder:
            raise ConfigError(
                f"{out}: expected a new or empty folder for the run, got one that holds "
                f"{path.name!r}; choose another folder"
            )


def _is_shared(store: StageStore | None, number: int, folder: Path) -> bool:
    """Copy a stage from the store of finished stages; tell whether it was there."""
    return store is not None and store.fetch(number, folder)


def _train_stage(
    recipe: Recipe, number: int, prepared: PreparedRun, folder: Path, progress: Progress
) -> None:
    """Train one stage and write its checkpoint."""
    stage, model = recipe.stage[number], prepared.model
    start = stage.start or (recipe.stage[number - 1].name if number else None)
    if start is not None:
        weights = read_tensors(folder.parent / start / "checkpoint" / "model.safetensors")
        model.load_state_dict(weights)
    device = next(model.parameters()).device
    sources = RunSources(folder.parent, folder, prepared.train_set, device, progress)
    trainer = set_up_stage(recipe, stage, prepared, folder, sources, progress)
    trainer.run()
    for branch in trainer.task.branches:
        merge_fine_tuned(branch.model, stage.tune)
    if is_main_process():
        _write_checkpoint(recipe, stage, prepared, trainer, folder)
    end_fine_tuning(model, stage.tune)
    wait_for_all()


def _write_checkpoint(
    recipe: Recipe, stage: StageConfig, prepared: PreparedRun, trainer: StageTrainer, folder: Path
) -> None:
    """Write the trained network, with a fusion fitted on the selection split, and its metrics."""
    model, _, selection_set, validation_set = prepared
    # The weights were chosen in the precision of training; here the heads compute in float32, as
    # when they serve. The features of frozen encoders keep the precision of their cache.
    scores, truth = _scores_of(model, selection_set)
    fusion = fit_fusion(scores["alignment"], scores["matching"], truth)
    if validation_set is not selection_set:
        scores, truth = _scores_of(model, validation_set)
    metrics = evaluate_scores(scores, fusion, truth).metrics()
    plain = dump_config(recipe)
    start = None if recipe.start is None else Path(recipe.start.checkpoint).expanduser()
    trained_before = start is not None and read_alignment_trained(start)
    provenance = Provenance(
        commit=_code_commit(),
        recipe=json.dumps(plain),
        stage=stage.name,
        step=trainer.best_step,
        validation={f"{name}_rsum": each.rsum for name, each in metrics.items()},
    )
    trained = trains_alignment(plain, stage.name, before=trained_before)
    save_checkpoint(folder / "checkpoint", model, fusion, provenance, trained)
    for number, branch in enumerate(trainer.task.branches[:-1]):
        scores, truth = _scores_of(branch.model, selection_set)
        own = fit_fusion(scores["alignment"], scores["matching"], truth)
        save_checkpoint(branch_checkpoint(folder, number), branch.model, own, provenance, trained)
    timing = {
        "steps": trainer.steps,
        "parameters": trainer.trained_parameters,
        **vars(trainer.clock),
    }
    write_results(folder, timing, metrics)


def _scores_of(model: AladinModel, pairs: PairDataset) -> tuple[dict[str, Tensor], Tensor]:
    """Score all pairs by every head; return the scores and the row of each text's image."""
    images, texts = pairs.encode(model)
    return score_encodings(model, images, texts), pairs.image_of_text.to(images.mask.device)


def _code_commit() -> str:
    """Return the commit of the running code, or "unknown" outside a repository."""
    try:
        answer = subprocess.run(
            ["git", "rev-parse", "HEAD"],
            cwd=Path(__file__).parent,
            capture_output=True,
            text=True,
            check=True,
        )
    except (OSError, subprocess.CalledProcessError):
        return "unknown"
    return answer.stdout.strip()


def _log_rsums(stage: str, metrics: dict[str, RetrievalMetrics]) -> None:
    rsums = ", ".join(f"{name} {each.rsum:.1f}" for name, each in metrics.items())
    logger.info("stage %s: validation rsum: %s", stage, rsums)


def _copy_final_checkpoint(recipe: Recipe, out: Path) -> Path:
    """Copy the final stage's checkpoint to the top of the run; return its folder."""
    checkpoint, final = out / "checkpoint", out / _STAGES / recipe.final_stage.name / "checkpoint"
    # A copy that exists is kept: a calibration may have been added to it.
    if is_main_process() and not _holds_model(checkpoint, read_model_id(final)):
        with atomic_folder(checkpoint) as partial:
            link_tree(final, partial)
    return checkpoint


def _holds_model(checkpoint: Path, model_id: str) -> bool:
    try:
        return read_model_id(checkpoint) == model_id
    except CheckpointError:
        return False

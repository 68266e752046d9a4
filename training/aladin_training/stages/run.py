"""Where a run's code comes from.

Run a recipe: prepare the data, train the stages in order, leave checkpoints.

OUT/recipe.json               the recipe with its overrides
OUT/stages/NAME/              state, log, curves, TensorBoard events, checkpoint, metrics
OUT/checkpoint/               the final stage's checkpoint
"""

from __future__ import annotations

import contextlib
import json
import logging
import subprocess
from pathlib import Path
from typing import NamedTuple

from aladin_network.checkpoint import Provenance, read_model_id, read_tensors, save_checkpoint
from aladin_network.config import dump_config, parse_config
from aladin_network.errors import CheckpointError, ConfigError
from aladin_network.files import atomic_folder, write_json
from aladin_network.model import AladinModel
from aladin_network.scoring.fusion import fit_fusion
from aladin_network.scoring.metrics import DirectionMetrics, RetrievalMetrics
from aladin_network.types import NullProgress, Progress
from aladin_training.adapters.parts import end_tuning, merge_tuned
from aladin_training.config.recipe import Recipe
from aladin_training.config.stage import StageConfig
from aladin_training.data.samples import PHOTO_SUFFIXES
from aladin_training.evaluation import evaluate_scores, score_encodings
from aladin_training.loop import StageTrainer
from aladin_training.parallel.distributed import (
    agreed,
    check_divides,
    first_goes_ahead,
    is_first,
    wait,
)
from aladin_training.parallel.threads import torch_threads
from aladin_training.stages.preparation import PreparedRun, identified, prepare_run
from aladin_training.stages.setup import set_up_stage
from aladin_training.stages.sources import RunSources, StageStore, link_tree


def code_commit() -> str:
    """Return the commit of the code that runs, "unknown" outside a repository."""
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


logger = logging.getLogger(__name__)

_STAGES = "stages"
_RECIPE = "recipe.json"
_TIMING = "timing.json"
# Written last: a stage that has it is finished.
_VALIDATION = "validation.json"


class RunResult(NamedTuple):
    """What a run leaves.

    Attributes:
        checkpoint: folder of the final stage's checkpoint.
        validation: by stage, the metrics of each score on the validation split.
    """

    checkpoint: Path
    validation: dict[str, dict[str, RetrievalMetrics]]


def run_recipe(
    recipe: Recipe,
    out: Path,
    *,
    resume: bool = False,
    progress: Progress | None = None,
    shared: Path | None = None,
) -> RunResult:
    """Train all stages of a recipe.

    Args:
        recipe: what to train.
        out: folder of the run.
        resume: go on with an interrupted run; finished stages are not trained again.
        progress: told of photos, captions and steps.
        shared: folder of finished stages. One with the same history, made by this run or by any
            other with the same folder, is copied from there instead of being trained.

    Raises:
        ConfigError: `out` holds a run already and `resume` is off, or it is another recipe's, or
            it holds photos or folders that are of no run.
        CheckpointError: the recipe starts from a checkpoint that cannot be read.
        DataError: the data cannot be used.
        NonFiniteLossError: training diverged.
    """
    progress = progress or NullProgress()
    recipe = identified(recipe)
    for stage in recipe.stage:
        check_divides(stage.batch_size)
    # A mistake in the last stage is better found before the first; and one in the recipe or in
    # the data leaves no folder that has to be cleared.
    with first_goes_ahead():
        prepared = prepare_run(
            recipe, progress, before_encoding=lambda: _claim(out, recipe, resume)
        )
    store = None
    if shared is not None and is_first():
        store = StageStore(shared, recipe, prepared.train_set.digest)
    validation: dict[str, dict[str, RetrievalMetrics]] = {}
    with torch_threads(recipe.threads):
        for number, stage in enumerate(recipe.stage):
            folder = out / _STAGES / stage.name
            with store.claim(number) if store is not None else contextlib.nullcontext():
                if not agreed(_is_finished(folder) or _is_taken(store, number, folder)):
                    start = stage.start or (recipe.stage[number - 1].name if number else None)
                    if start is not None:
                        _load_weights(prepared.model, out / _STAGES / start / "checkpoint")
                    _train_stage(recipe, stage, prepared, folder, progress)
                    if store is not None:
                        store.give(number, folder)
            validation[stage.name] = read_validation(folder)
            _report(stage.name, validation[stage.name])
    checkpoint, final = out / "checkpoint", out / _STAGES / recipe.final_stage.name / "checkpoint"
    # One that is there already may hold more than the stage left: a calibration.
    if is_first() and not _is_copy(checkpoint, read_model_id(final)):
        with atomic_folder(checkpoint) as partial:
            link_tree(final, partial)
    return RunResult(checkpoint, validation)


def _is_finished(folder: Path) -> bool:
    return (folder / _VALIDATION).exists()


def _is_taken(store: StageStore | None, number: int, folder: Path) -> bool:
    return store is not None and store.take(number, folder)


def _is_copy(checkpoint: Path, model_id: str) -> bool:
    try:
        return read_model_id(checkpoint) == model_id
    except CheckpointError:
        return False


def _report(stage: str, metrics: dict[str, RetrievalMetrics]) -> None:
    rsums = ", ".join(f"{name} {each.rsum:.1f}" for name, each in metrics.items())
    logger.info("stage %s: validation rsum: %s", stage, rsums)


def read_validation(stage_folder: Path) -> dict[str, RetrievalMetrics]:
    """Read the validation metrics of a finished stage, by score name."""
    data = json.loads((stage_folder / _VALIDATION).read_text(encoding="utf-8"))
    return {
        name: RetrievalMetrics(
            DirectionMetrics(**directions["text_to_image"]),
            DirectionMetrics(**directions["image_to_text"]),
        )
        for name, directions in data.items()
    }


def _timing(trainer: StageTrainer) -> dict[str, float]:
    """Return what a stage cost: steps, seconds of each part, and how much it trained."""
    return {
        "steps": trainer.steps,
        "parameters": trainer.trained_parameters,
        **vars(trainer.clock),
    }


def _claim(out: Path, recipe: Recipe, resume: bool) -> None:
    """Make the folder this recipe's, or refuse it; one process does so for all."""
    if not is_first():
        return
    if (out / _RECIPE).exists():
        if not resume:
            raise ConfigError(f"{out} holds a run; go on with --resume, or choose another folder")
        if not is_run_of(out, recipe):
            raise ConfigError(f"{out} holds a run of another recipe; choose another folder")
    else:
        _refuse_foreign(out)
        write_json(out / _RECIPE, dump_config(recipe))


def _refuse_foreign(out: Path) -> None:
    """Refuse a folder of photos, an index and the like; logs, notes and stages may be there.

    Raises:
        ConfigError: the folder holds a photo, or a folder that is neither hidden nor a run's own.
    """
    for path in sorted(out.iterdir()) if out.is_dir() else ():
        is_photo = path.suffix.lower() in PHOTO_SUFFIXES
        is_folder = path.is_dir() and path.name != _STAGES and not path.name.startswith(".")
        if is_photo or is_folder:
            raise ConfigError(
                f"{out}: expected a new or empty folder for the run, got one that holds "
                f"{path.name!r}; choose another folder"
            )


def is_run_of(out: Path, recipe: Recipe) -> bool:
    """Tell whether a folder holds a run of this very recipe, finished or not."""
    try:
        text = (out / _RECIPE).read_text(encoding="utf-8")
    except FileNotFoundError:
        return False
    try:
        known = parse_config(Recipe, json.loads(text), _RECIPE)
    except (ValueError, ConfigError):
        return False
    # Both parsed: tuples equal lists then, and a run older than a key has the key's default.
    return known == parse_config(Recipe, dump_config(identified(recipe)), _RECIPE)


def _load_weights(model: AladinModel, checkpoint: Path) -> None:
    model.load_state_dict(read_tensors(checkpoint / "model.safetensors"))


def _train_stage(
    recipe: Recipe, stage: StageConfig, prepared: PreparedRun, folder: Path, progress: Progress
) -> None:
    """Train one stage and write its checkpoint."""
    device = next(prepared.model.parameters()).device
    sources = RunSources(folder.parent, folder, prepared.train_set, device, progress)
    trainer = set_up_stage(recipe, stage, prepared, folder, sources, progress)
    trainer.run()
    merge_tuned(prepared.model, stage.tune)
    if is_first():
        _leave_checkpoint(recipe, stage, prepared, trainer, folder)
    end_tuning(prepared.model, stage.tune)
    wait()


def _leave_checkpoint(
    recipe: Recipe, stage: StageConfig, prepared: PreparedRun, trainer: StageTrainer, folder: Path
) -> None:
    """Write what a stage has learnt, with the fusion fitted on the validation split."""
    model, _, validation_set = prepared
    # Chosen in the training's number format, measured in the serving's: float32.
    images, texts = validation_set.encode(model)
    truth = validation_set.image_of_text.to(images.mask.device)
    scores = score_encodings(model, images, texts)
    fusion = fit_fusion(scores["alignment"], scores["matching"], truth)
    metrics = evaluate_scores(scores, fusion, truth).metrics()
    provenance = Provenance(
        commit=code_commit(),
        recipe=json.dumps(dump_config(recipe)),
        stage=stage.name,
        step=trainer.best_step,
        validation={f"{name}_rsum": each.rsum for name, each in metrics.items()},
    )
    save_checkpoint(folder / "checkpoint", model, fusion, provenance)
    write_json(folder / _TIMING, _timing(trainer))
    directions = ("text_to_image", "image_to_text")
    write_json(
        folder / _VALIDATION,
        {
            name: {direction: getattr(each, direction)._asdict() for direction in directions}
            for name, each in metrics.items()
        },
    )

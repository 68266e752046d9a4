"""Run a recipe: prepare the data, train the stages in order, leave checkpoints.

OUT/recipe.json               the recipe with its overrides
OUT/stages/NAME/              state, log, curves, TensorBoard events, checkpoint, metrics
OUT/checkpoint/               the final stage's checkpoint
"""

from __future__ import annotations

import functools
import json
import logging
import shutil
from pathlib import Path
from typing import NamedTuple

import torch
from safetensors.torch import load_file
from tokenizers import Tokenizer

from aladin.atomic import atomic_folder, write_json
from aladin.checkpoint import Provenance, load_checkpoint, save_checkpoint
from aladin.encoders.vocabulary import train_tokenizer
from aladin.errors import ConfigError
from aladin.fusion import Fusion, fit_fusion
from aladin.metrics import DirectionMetrics, RetrievalMetrics, retrieval_metrics
from aladin.model import AladinModel
from aladin.progress import NullProgress, Progress
from aladin.scoring import matching_scores
from aladin.strict_config import dump_config
from training.data import Record, read_records
from training.dataset import PairDataset
from training.evaluation import evaluate_encodings
from training.loop import StageTrainer
from training.precision import computing
from training.provenance import code_commit
from training.recipe import Recipe, StageConfig
from training.tasks.joint import JointTask, build_loss
from training.tasks.parts import reset_part
from training.tasks.teacher import Teacher
from training.threads import torch_threads
from training.views import PLAIN, view_names

logger = logging.getLogger(__name__)

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
    recipe: Recipe, out: Path, *, resume: bool = False, progress: Progress | None = None
) -> RunResult:
    """Train all stages of a recipe.

    Args:
        recipe: what to train.
        out: folder of the run.
        resume: go on with an interrupted run; finished stages are not trained again.
        progress: told of photos, captions and steps.

    Raises:
        ConfigError: `out` holds a run already and `resume` is off, or it is another recipe's.
        DataError: the data cannot be used.
        NonFiniteLossError: training diverged.
    """
    progress = progress or NullProgress()
    for stage in recipe.stage:
        for task in stage.tasks.values():
            build_loss(task)  # a fault in the last stage is better found before the first
    torch.manual_seed(recipe.seed)
    train_records = _read(recipe, recipe.data.train_split)
    validation_records = _read(recipe, recipe.data.validation_split)
    model = AladinModel.create(recipe.model, _tokenizer(recipe, train_records))
    # Only now: a mistake in the recipe or the data leaves no folder that has to be cleared.
    _claim(out, recipe, resume)
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    cache = Path(recipe.data.cache).expanduser()
    views = view_names(recipe.data.mirror, recipe.data.crops)
    prepare = functools.partial(
        PairDataset.prepare,
        model=model,
        cache_root=cache,
        precision=recipe.precision,
        progress=progress,
    )
    train_set = prepare(train_records, views=views)
    validation_set = prepare(validation_records, views=[PLAIN])
    model.to(device)

    validation: dict[str, dict[str, RetrievalMetrics]] = {}
    with torch_threads(recipe.threads):
        for number, stage in enumerate(recipe.stage):
            folder = out / "stages" / stage.name
            if not (folder / _VALIDATION).exists():
                start = stage.start or (recipe.stage[number - 1].name if number else None)
                if start is not None:
                    _load_weights(model, out / "stages" / start / "checkpoint")
                _train_stage(recipe, stage, model, train_set, validation_set, folder, progress)
            validation[stage.name] = read_validation(folder)
            _report(stage.name, validation[stage.name])
    final = recipe.final or recipe.stage[-1].name
    with atomic_folder(out / "checkpoint") as partial:
        shutil.copytree(out / "stages" / final / "checkpoint", partial, dirs_exist_ok=True)
    return RunResult(out / "checkpoint", validation)


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


def _claim(out: Path, recipe: Recipe, resume: bool) -> None:
    """Make the folder this recipe's, or refuse it."""
    path = out / "recipe.json"
    # Through JSON: lists and tuples compare equal then.
    wanted = json.loads(json.dumps(dump_config(recipe)))
    if path.exists():
        if not resume:
            raise ConfigError(f"{out} holds a run; go on with --resume, or choose another folder")
        if json.loads(path.read_text(encoding="utf-8")) != wanted:
            raise ConfigError(f"{out} holds a run of another recipe; choose another folder")
    else:
        write_json(path, wanted)


def _read(recipe: Recipe, split: str) -> list[Record]:
    return read_records(Path(recipe.data.source).expanduser(), split)


def _tokenizer(recipe: Recipe, records: list[Record]) -> Tokenizer | None:
    if recipe.model.text_encoder.source is not None:
        return None
    captions = (caption for record in records for caption in record.captions)
    return train_tokenizer(captions, recipe.tokenizer.vocabulary_size)


def _load_weights(model: AladinModel, checkpoint: Path) -> None:
    model.load_state_dict(load_file(checkpoint / "model.safetensors"))


def _train_stage(
    recipe: Recipe,
    stage: StageConfig,
    model: AladinModel,
    train_set: PairDataset,
    validation_set: PairDataset,
    folder: Path,
    progress: Progress,
) -> None:
    """Train one stage and write its checkpoint, with the fusion fitted on the validation split."""
    torch.manual_seed(recipe.seed)
    for part in stage.reset:
        reset_part(model, part)
    device = next(model.parameters()).device
    teacher = None
    if stage.teacher is not None:
        taught_by = folder.parent / stage.teacher / "checkpoint"
        teacher = Teacher(load_checkpoint(taught_by, device), stage.teacher_score)
    task = JointTask(model, stage, teacher)

    def validate() -> dict[str, RetrievalMetrics]:
        with torch.inference_mode(), computing(recipe.precision, device):
            images, texts = validation_set.encode(model)
            scores = {}
            if "matching" in task.trains:
                scores["matching"] = matching_scores(images, texts)
            if "alignment" in task.trains:
                scores["alignment"] = model.alignment_scores(images, texts)
        truth = validation_set.image_of_text.to(device)
        return {name: retrieval_metrics(each, truth) for name, each in scores.items()}

    trainer = StageTrainer(recipe, stage, task, train_set, validate, folder, progress)
    trainer.run()

    # Chosen in the training's number format, measured in the serving's: float32.
    images, texts = validation_set.encode(model)
    truth = validation_set.image_of_text.to(device)
    unfused = evaluate_encodings(model, Fusion(), images, texts, truth)
    fusion = fit_fusion(unfused.alignment_scores, unfused.matching_scores, truth)
    evaluation = evaluate_encodings(model, fusion, images, texts, truth)
    metrics = evaluation.metrics()
    provenance = Provenance(
        commit=code_commit(),
        recipe=json.dumps(dump_config(recipe)),
        stage=stage.name,
        step=trainer.best_step,
        validation={f"{name}_rsum": each.rsum for name, each in metrics.items()},
    )
    save_checkpoint(folder / "checkpoint", model, fusion, provenance)
    directions = ("text_to_image", "image_to_text")
    write_json(
        folder / _VALIDATION,
        {
            name: {direction: getattr(each, direction)._asdict() for direction in directions}
            for name, each in metrics.items()
        },
    )

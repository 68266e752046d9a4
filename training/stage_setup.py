"""From a stage's configuration to a trainer that is ready to run."""

from __future__ import annotations

from pathlib import Path

import torch

from aladin.metrics import RetrievalMetrics, retrieval_metrics
from aladin.model import AladinModel
from aladin.progress import Progress
from training.batch_source import BatchSource, PlannedBatches
from training.batches import BatchPlan
from training.dataset import PairDataset
from training.distributed import first_goes_ahead
from training.loop import StageTrainer, Validate
from training.precision import Precision, computing
from training.preparation import PreparedRun
from training.recipe import Recipe
from training.stage import StageConfig
from training.stage_networks import build_networks
from training.stage_sources import StageSources
from training.streaming.photo_stream import PhotoStream
from training.streaming.streamed_batches import StreamedBatches
from training.tasks.parts import reset_part


def set_up_stage(
    recipe: Recipe,
    stage: StageConfig,
    prepared: PreparedRun,
    folder: Path,
    sources: StageSources,
    progress: Progress,
) -> StageTrainer:
    """Build the tasks, anchors and lists of a stage around the network.

    Args:
        recipe: for seed and precision.
        stage: what to train.
        prepared: data, and the network with the weights that the stage starts from; it is
            trained in place.
        folder: of the stage.
        sources: earlier stages.
        progress: told of steps.
    """
    model, train_set, validation_set = prepared
    torch.manual_seed(recipe.seed)
    for part in stage.reset:
        reset_part(model, part)
    networks = build_networks(recipe, stage, model, sources)
    with first_goes_ahead():  # it fills the caches of the frozen encoders
        if isinstance(train_set, PairDataset):
            train_set = train_set.read_by(model, networks.others)
        validation_set = validation_set.read_by(model)
    batches = _batches(recipe, stage, train_set, sources)
    validate = _validation(stage, model, validation_set, recipe.precision)
    return StageTrainer(recipe, stage, networks.task, batches, validate, folder, progress)


def _batches(
    recipe: Recipe,
    stage: StageConfig,
    train_set: PairDataset | PhotoStream,
    sources: StageSources,
) -> BatchSource:
    seed = f"{recipe.seed}:{stage.name}"
    if isinstance(train_set, PhotoStream):
        return StreamedBatches(
            train_set, stage.batch_size, stage.captions_per_photo, seed, stage.negatives
        )
    offline = None
    if stage.offline is not None:
        with first_goes_ahead():  # it mines where that has not been done
            offline = sources.negatives(stage.offline)
    plan = BatchPlan(
        train_set.captions_of_photo,
        stage.batch_size,
        stage.captions_per_photo,
        train_set.views,
        seed,
        offline,
        stage.offline is not None and stage.offline.coupled,
    )
    return PlannedBatches(train_set, plan, stage.negatives)


def _validation(
    stage: StageConfig, model: AladinModel, validation_set: PairDataset, precision: Precision
) -> Validate:
    device = next(model.parameters()).device

    def validate() -> dict[str, RetrievalMetrics]:
        with torch.inference_mode(), computing(precision, device):
            images, texts = validation_set.encode(model)
            scores = {
                name: model.scores(name, images, texts) for name in sorted(stage.trained_scores)
            }
        truth = validation_set.image_of_text.to(device)
        return {name: retrieval_metrics(each, truth) for name, each in scores.items()}

    return validate

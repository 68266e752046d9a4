"""From a stage's configuration to a trainer that is ready to run."""

from __future__ import annotations

from pathlib import Path

import torch

from aladin.metrics import RetrievalMetrics, retrieval_metrics
from aladin.model import AladinModel
from aladin.progress import Progress
from training.dataset import PairDataset
from training.loop import StageTrainer, Validate
from training.precision import Precision, computing
from training.preparation import PreparedRun
from training.recipe import Recipe
from training.seeds import seed_from
from training.stage import (
    RANDOM,
    AnchorsConfig,
    StageConfig,
)
from training.stage_sources import StageSources
from training.tasks.joint import JointTask
from training.tasks.momentum import MomentumAnchor
from training.tasks.online import OnlineBranches
from training.tasks.parts import reset_part
from training.tasks.scores import FrozenNetwork
from training.tasks.teacher import Teacher


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
    teacher = None
    if stage.teacher is not None:
        teacher = Teacher(sources.checkpoint(stage.teacher), stage.teacher_score)
    task = _task(recipe, stage, model, teacher, sources)
    offline = sources.negatives(stage.offline) if stage.offline is not None else None
    validate = _validation(stage, model, validation_set, recipe.precision)
    return StageTrainer(recipe, stage, task, train_set, validate, folder, progress, offline)


def _task(
    recipe: Recipe,
    stage: StageConfig,
    model: AladinModel,
    teacher: Teacher | None,
    sources: StageSources,
) -> JointTask | OnlineBranches:
    anchors = stage.anchors
    if anchors is None:
        return JointTask(model, stage, teacher)
    match anchors.scenario:
        case "offline":
            frozen = [FrozenNetwork(sources.checkpoint(name).model) for name in anchors.stages]
            return JointTask(model, stage, teacher, frozen)
        case "momentum":
            # The task first: it chooses what is trained, and an anchor follows that alone.
            target = JointTask(model, stage, teacher)
            target.anchors = tuple(MomentumAnchor(model, decay) for decay in anchors.decays)
            return target
        case "online":
            branches = [
                JointTask(branch, stage, teacher)
                for branch in _branches(recipe, stage, anchors, model, sources)
            ]
            return OnlineBranches(branches, JointTask(model, stage, teacher))


def _branches(
    recipe: Recipe,
    stage: StageConfig,
    anchors: AnchorsConfig,
    model: AladinModel,
    sources: StageSources,
) -> list[AladinModel]:
    """Build the network of each online anchor, with the weights that it starts from."""
    device = next(model.parameters()).device
    branches: list[AladinModel] = []
    for number, name in enumerate(anchors.stages):
        if name == RANDOM:
            with torch.random.fork_rng():
                torch.manual_seed(seed_from(f"{recipe.seed}:{stage.name}:{number}"))
                branch = AladinModel.create(model.config, model.text.encoder.tokenizer)
            branches.append(branch.to(device))
        else:
            branch = sources.checkpoint(name).model
            branches.append(branch)
    return branches


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

"""The networks of a stage: the one that is trained, its teacher and its anchors.

From a stage's configuration to a trainer that is ready to run.
"""

from __future__ import annotations

import copy
from pathlib import Path
from typing import NamedTuple

import torch

from aladin_network.model import AladinModel
from aladin_network.scoring.metrics import RetrievalMetrics, retrieval_metrics
from aladin_network.types import Progress
from aladin_training.adapters.parts import reset_part, start_tuning
from aladin_training.batches.dataset import BatchSource, PairDataset, PlannedBatches
from aladin_training.batches.plan import BatchPlan
from aladin_training.config.recipe import Recipe
from aladin_training.config.stage import RANDOM, AnchorsConfig, StageConfig
from aladin_training.loop import StageTrainer, Validate
from aladin_training.parallel.distributed import first_goes_ahead
from aladin_training.parallel.numerics import Precision, computing, seed_from
from aladin_training.stages.preparation import PreparedRun
from aladin_training.stages.sources import StageSources
from aladin_training.streaming.stream import PhotoStream
from aladin_training.streaming.streamed_batches import StreamedBatches
from aladin_training.tasks.frozen import MomentumAnchor, Teacher
from aladin_training.tasks.joint import JointTask, OnlineBranches
from aladin_training.tasks.scores import FrozenNetwork


class StageNetworks(NamedTuple):
    """What a stage trains, and who else looks at its batches.

    Attributes:
        task: the networks that are trained, with their losses.
        others: networks whose encoders may be others than the trained one's, by the names that
            they ask `Batch.seen_by` for: a stage between may have tuned an encoder.
    """

    task: JointTask | OnlineBranches
    others: dict[str, AladinModel]


def build_networks(
    recipe: Recipe, stage: StageConfig, model: AladinModel, sources: StageSources
) -> StageNetworks:
    """Build the task of a stage around its network, with those that help to train it.

    Args:
        recipe: for the seed of new weights.
        stage: what to train.
        model: trained in place; its tuned encoders are thawed here.
        sources: earlier stages.

    Raises:
        ConfigError: a loss does not fit its task, or an encoder cannot be tuned as it should.
    """
    others: dict[str, AladinModel] = {}

    def earlier(name: str) -> FrozenNetwork:
        others[name] = sources.checkpoint(name).model
        return FrozenNetwork(others[name], name)

    teacher = None
    if stage.teacher is not None:
        checkpoint = sources.checkpoint(stage.teacher)
        others[stage.teacher] = checkpoint.model
        teacher = Teacher(checkpoint, stage.teacher_score, stage.teacher)
    anchors = stage.anchors
    if anchors is None:
        start_tuning(model, stage.tune)
        return StageNetworks(JointTask(model, stage, teacher), others)
    match anchors.scenario:
        case "offline":
            frozen = [earlier(name) for name in anchors.stages]
            start_tuning(model, stage.tune)
            return StageNetworks(JointTask(model, stage, teacher, frozen), others)
        case "momentum":
            start_tuning(model, stage.tune)
            # The task first: it chooses what is trained, and an anchor follows that alone.
            target = JointTask(model, stage, teacher)
            # They read what the target reads: what of it is not trained is the same in both.
            target.anchors = tuple(MomentumAnchor(model, decay) for decay in anchors.decays)
            return StageNetworks(target, others)
        case "online":
            branches: list[JointTask] = []
            for number, branch in enumerate(_branches(recipe, stage, anchors, model, sources)):
                start_tuning(branch, stage.tune)
                name = f"branch {number}"
                others[name] = branch
                branches.append(JointTask(branch, stage, teacher, reads=name))
            start_tuning(model, stage.tune)
            return StageNetworks(OnlineBranches(branches, JointTask(model, stage, teacher)), others)


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
                branches.append(_anew(model).to(device))
        else:
            branches.append(sources.checkpoint(name).model)
    return branches


def _anew(model: AladinModel) -> AladinModel:
    """Build a network with new weights, except for frozen encoders: these it has as they are."""
    frozen = [tower.encoder.frozen for tower in (model.image, model.text)]
    if all(frozen):
        # Together: the image encoder may share the text encoder's weights.
        encoders = copy.deepcopy((model.image.encoder, model.text.encoder))
        return AladinModel(model.config, *encoders)
    anew = AladinModel.create(model.config, model.text.encoder.tokenizer)
    # An earlier stage may have tuned what the configuration's source still has untuned.
    for new, own in (
        (anew.image.encoder, model.image.encoder),
        (anew.text.encoder, model.text.encoder),
    ):
        if own.frozen:
            new.load_state_dict(own.state_dict())
    return anew


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

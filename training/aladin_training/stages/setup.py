"""From a stage's configuration to a trainer that is ready to run."""

from __future__ import annotations

import copy
import itertools
from pathlib import Path
from typing import NamedTuple

import torch

from aladin_network.checkpoint import load_checkpoint
from aladin_network.model import AladinModel
from aladin_network.scoring.metrics import retrieval_metrics
from aladin_network.scoring.separation import mean_difference
from aladin_network.types import Progress
from aladin_training.adapters.parts import reset_part, start_fine_tuning
from aladin_training.batches.dataset import PairDataset
from aladin_training.batches.offline_negatives import OfflineNegatives
from aladin_training.config.anchors import RANDOM, AnchorsConfig
from aladin_training.config.recipe import Recipe
from aladin_training.config.stage import StageConfig
from aladin_training.loop import StageTrainer, Validate
from aladin_training.parallel.distributed import main_process_first
from aladin_training.parallel.numerics import Precision, mixed_precision, seed_from
from aladin_training.stage_files import Validation
from aladin_training.stages.preparation import PreparedRun, check_model_id
from aladin_training.stages.sources import StageSources
from aladin_training.tasks.frozen import MomentumAnchor, Teacher
from aladin_training.tasks.joint import JointTask, OnlineBranches
from aladin_training.tasks.scores import FrozenNetwork


def set_up_stage(
    recipe: Recipe,
    stage: StageConfig,
    prepared: PreparedRun,
    folder: Path,
    sources: StageSources,
    progress: Progress,
) -> StageTrainer:
    """Build the networks, batches and validation of a stage around the trained network."""
    model, train_set, selection_set, _ = prepared
    for part in stage.reset:
        # Other numbers than those of the first weights, and than those of other stages.
        torch.manual_seed(seed_from(f"{recipe.seed}:{stage.name}:{part}"))
        reset_part(model, part)
    torch.manual_seed(recipe.seed)
    networks = build_networks(recipe, stage, model, sources)
    with main_process_first():  # the first process fills the caches of the frozen encoders
        train_set = train_set.read_by(model, networks.others)
        selection_set = selection_set.read_by(model)
    seed = f"{recipe.seed}:{stage.name}"
    batches = train_set.batches(stage, seed, _mined(stage, sources))
    validate = _validation(stage, model, selection_set, recipe.precision)
    return StageTrainer(recipe, stage, networks.task, batches, validate, folder, progress)


class StageNetworks(NamedTuple):
    """The trained networks of a stage, and others that read its batches, by `Batch.others`."""

    task: JointTask | OnlineBranches
    others: dict[str, AladinModel]


def build_networks(
    recipe: Recipe, stage: StageConfig, model: AladinModel, sources: StageSources
) -> StageNetworks:
    """Build the task of a stage around its network, with its teacher and its anchors."""
    others: dict[str, AladinModel] = {}
    teacher = _teacher(stage, sources, others)
    anchors = stage.anchors
    if anchors is None:
        start_fine_tuning(model, stage.tune)
        return StageNetworks(JointTask(model, stage, teacher), others)
    match anchors.scenario:
        case "offline":
            device = next(model.parameters()).device
            frozen = _offline_anchors(anchors, sources, device, others)
            start_fine_tuning(model, stage.tune)
            return StageNetworks(JointTask(model, stage, teacher, frozen), others)
        case "momentum":
            start_fine_tuning(model, stage.tune)
            # The task comes first: it chooses the trained parameters, which anchors follow.
            target = JointTask(model, stage, teacher)
            # Anchors read what the target reads: parts that are not trained are equal in both.
            target.momentum_anchors = tuple(
                MomentumAnchor(model, decay) for decay in anchors.decays
            )
            return StageNetworks(target, others)
        case "online":
            branches: list[JointTask] = []
            networks = _online_anchors(recipe, stage, anchors, model, sources)
            for number, branch in enumerate(networks):
                start_fine_tuning(branch, stage.tune)
                name = f"branch {number}"
                others[name] = branch
                branches.append(JointTask(branch, stage, teacher, reads=name))
            start_fine_tuning(model, stage.tune)
            target = JointTask(model, stage, teacher)
            return StageNetworks(OnlineBranches(branches, target, anchors.mutual), others)


def _teacher(
    stage: StageConfig, sources: StageSources, others: dict[str, AladinModel]
) -> Teacher | None:
    if stage.teacher is None:
        return None
    checkpoint = sources.checkpoint(stage.teacher)
    others[stage.teacher] = checkpoint.model
    return Teacher(checkpoint, stage.teacher_score, stage.teacher)


def _offline_anchors(
    anchors: AnchorsConfig,
    sources: StageSources,
    device: torch.device,
    others: dict[str, AladinModel],
) -> list[FrozenNetwork]:
    """Load the frozen networks of earlier stages and of other runs."""
    networks = {name: sources.checkpoint(name).model for name in anchors.stages}
    for folder, expected in itertools.zip_longest(anchors.checkpoints, anchors.model_ids):
        checkpoint = load_checkpoint(Path(folder).expanduser(), device)
        check_model_id("anchors", folder, expected, checkpoint.model_id)
        networks[folder] = checkpoint.model
    others |= networks
    return [FrozenNetwork(network, name) for name, network in networks.items()]


def _online_anchors(
    recipe: Recipe,
    stage: StageConfig,
    anchors: AnchorsConfig,
    model: AladinModel,
    sources: StageSources,
) -> list[AladinModel]:
    """Build the network of each online anchor with its initial weights."""
    device = next(model.parameters()).device
    networks: list[AladinModel] = []
    for number, name in enumerate(anchors.stages):
        if name == RANDOM:
            with torch.random.fork_rng():
                torch.manual_seed(seed_from(f"{recipe.seed}:{stage.name}:{number}"))
                networks.append(_new_network(model).to(device))
        else:
            networks.append(sources.checkpoint(name).model)
    return networks


def _new_network(model: AladinModel) -> AladinModel:
    """Build a network with new weights, except for frozen encoders, whose weights are copied."""
    frozen = [tower.encoder.frozen for tower in (model.image, model.text)]
    if all(frozen):
        # Copied together: the image encoder may share the weights of the text encoder.
        encoders = copy.deepcopy((model.image.encoder, model.text.encoder))
        return AladinModel(model.config, *encoders)
    new_model = AladinModel.create(model.config, model.text.encoder.tokenizer)
    # An earlier stage may have tuned an encoder that the configuration's source holds untuned.
    for new, old in (
        (new_model.image.encoder, model.image.encoder),
        (new_model.text.encoder, model.text.encoder),
    ):
        if old.frozen:
            new.load_state_dict(old.state_dict())
    return new_model


def _mined(stage: StageConfig, sources: StageSources) -> OfflineNegatives | None:
    if stage.offline is None:
        return None
    with main_process_first():  # the first process mines, unless that has been done
        return sources.negatives(stage.offline)


def _validation(
    stage: StageConfig, model: AladinModel, selection_set: PairDataset, precision: Precision
) -> Validate:
    device = next(model.parameters()).device

    def validate() -> dict[str, Validation]:
        with torch.inference_mode(), mixed_precision(precision, device):
            images, texts = selection_set.encode(model)
            scores = {
                name: model.scores(name, images, texts) for name in sorted(stage.trained_scores)
            }
        truth = selection_set.image_of_text.to(device)
        return {
            # In float32: sums of bfloat16 have three digits.
            name: Validation(retrieval_metrics(each, truth), mean_difference(each.float(), truth))
            for name, each in scores.items()
        }

    return validate

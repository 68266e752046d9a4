"""The networks of a stage: the one that is trained, its teacher and its anchors."""

from __future__ import annotations

import copy
from typing import NamedTuple

import torch

from aladin.model import AladinModel
from training.recipe import Recipe
from training.seeds import seed_from
from training.stage import RANDOM, AnchorsConfig, StageConfig
from training.stage_sources import StageSources
from training.tasks.joint import JointTask
from training.tasks.momentum import MomentumAnchor
from training.tasks.online import OnlineBranches
from training.tasks.scores import FrozenNetwork
from training.tasks.teacher import Teacher
from training.tuning.encoders import start_tuning


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

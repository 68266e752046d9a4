"""The parts of the network that a stage may train, reset or slow down."""

from __future__ import annotations

import re
from collections.abc import Mapping
from types import MappingProxyType
from typing import cast

from torch import nn

from aladin.model import AladinModel
from training.stage import Part, ResettablePart
from training.tuning.config import EncoderPart, TuneConfig
from training.tuning.encoders import encoder_of
from training.tuning.layers import tuned_names

# Longest prefix first: a tower's encoder is a part of its own.
_PREFIXES: tuple[tuple[str, Part], ...] = (
    ("image.encoder.", "image_encoder"),
    ("text.encoder.", "text_encoder"),
    ("image.", "image_trunk"),
    ("text.", "text_trunk"),
    ("alignment.", "alignment"),
    ("matching.", "matching"),
    ("attention.", "attention"),
)


# What stands before the model's own names where a task, or a branch of one, holds the model.
_IN_TASK = re.compile(r"^(?:_branches\.\d+\.)?model\.")


def part_of(parameter_name: str) -> Part | None:
    """Return the part that a parameter of the model, or of a task around it, belongs to."""
    name = _IN_TASK.sub("", parameter_name)
    return next((part for prefix, part in _PREFIXES if name.startswith(prefix)), None)


def set_trained_parts(
    model: AladinModel,
    parts: tuple[Part, ...] | None,
    tune: Mapping[EncoderPart, TuneConfig] = MappingProxyType({}),
) -> None:
    """Let gradients reach `parts` only (None: all); an encoder stays frozen unless it is tuned.

    Args:
        model: the network.
        parts: to be trained.
        tune: encoders of which some weights are trained, or all, see `start_tuning`.
    """
    # Not whether its output is: an image encoder may share the text encoder's weights.
    frozen = {
        "image_encoder": model.config.image_encoder.frozen,
        "text_encoder": model.config.text_encoder.frozen,
    }
    for name, parameter in model.named_parameters():
        part = part_of(name)
        wanted = parts is None or part in parts
        parameter.requires_grad_(wanted and not frozen.get(cast(str, part), False))
    for part, config in tune.items():
        encoder = encoder_of(model, part)
        chosen = tuned_names(encoder, config)
        for name, parameter in encoder.named_parameters():
            parameter.requires_grad_(name in chosen)


def reset_part(model: AladinModel, part: ResettablePart) -> None:
    """Give one part new random weights."""
    towers = {"image_trunk": model.image, "text_trunk": model.text}
    heads: dict[str, nn.Module | None] = {
        "alignment": model.alignment,
        "matching": model.matching,
        "attention": model.attention,
    }
    if part in heads:
        head = heads[part]
        modules = list(head.modules()) if head is not None else []
    else:
        tower = towers[part]
        trunk = list(tower.trunk.modules()) if tower.trunk is not None else []
        modules = [*trunk, tower]
    # Children before parents, which may overrule them.
    for module in reversed(modules):
        reset = getattr(module, "reset_parameters", None)
        if reset is not None:
            reset()


def set_training_mode(model: AladinModel) -> None:
    """Put what is trained in training mode, what is not in evaluation mode."""
    model.train()
    for module in model.modules():
        own = list(module.parameters())
        if own and not any(parameter.requires_grad for parameter in own):
            module.eval()

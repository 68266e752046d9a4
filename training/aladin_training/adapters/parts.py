"""The parts of the network that a stage trains, resets or slows down, and its tuned encoders."""

from __future__ import annotations

import re
from collections.abc import Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, cast

from torch import nn

from aladin_network.encoders.base import Freezable
from aladin_network.errors import ConfigError
from aladin_network.model import AladinModel
from aladin_training.adapters.layers import fine_tuned_names, lr_factors
from aladin_training.adapters.lora import add_adapters, check_targets, merge_adapters
from aladin_training.config.stage import Part, ResettablePart
from aladin_training.config.tune import EncoderPart, TuneConfig

if TYPE_CHECKING:
    from transformers import PreTrainedModel

# Longest prefix first: the encoder of a tower is a part of its own.
_PREFIXES: tuple[tuple[str, Part], ...] = (
    ("image.encoder.", "image_encoder"),
    ("text.encoder.", "text_encoder"),
    ("image.", "image_trunk"),
    ("text.", "text_trunk"),
    ("alignment.", "alignment"),
    ("matching.", "matching"),
    ("attention.", "attention"),
)

# Prefix of the model's own names in a task, or in a branch of one, that holds the model.
_IN_TASK = re.compile(r"^(?:_branches\.\d+\.)?model\.")


def encoder_of(model: AladinModel, part: EncoderPart) -> Freezable:
    """Return one of the network's encoders."""
    tower = model.image if part == "image_encoder" else model.text
    return tower.encoder


def check_fine_tuning(model: AladinModel, tune: Mapping[EncoderPart, TuneConfig]) -> None:
    """Check that a stage can fine-tune the encoders as requested."""
    for part, config in tune.items():
        encoder = encoder_of(model, part)
        try:
            lr_factors(encoder, config)
            if config.mode == "lora":
                check_targets(encoder, config.targets)
            else:
                fine_tuned_names(encoder, config)
            if config.cached:
                encoder.divide(config.layers)
            if config.checkpointing:
                _checkpointed(encoder)
        except ConfigError as error:
            raise ConfigError(f"tune.{part}: {error}") from error


def start_fine_tuning(model: AladinModel, tune: Mapping[EncoderPart, TuneConfig]) -> None:
    """Unfreeze the encoders that a stage fine-tunes, and add their adapters.

    Batch norms keep their running statistics: those come from far more photos than a batch has.
    """
    for part, config in tune.items():
        encoder = encoder_of(model, part)
        encoder.frozen = False
        encoder.fixed_statistics = True
        if config.cached:
            encoder.divide(config.layers)
        if config.checkpointing:
            _checkpointed(encoder).activation_checkpointing_enable(
                activation_checkpointing_kwargs={"use_reentrant": False}
            )
        if config.mode == "lora":
            add_adapters(encoder, config)
    _forget_digests(model)


def merge_fine_tuned(model: AladinModel, tune: Mapping[EncoderPart, TuneConfig]) -> None:
    """Merge the adapters of a network, so that each of its matrices is one weight again."""
    for part, config in tune.items():
        if config.mode == "lora":
            merge_adapters(encoder_of(model, part))
    _forget_digests(model)


def end_fine_tuning(model: AladinModel, tune: Mapping[EncoderPart, TuneConfig]) -> None:
    """Restore the state of the encoders that the network's configuration requests."""
    for part, config in tune.items():
        encoder = encoder_of(model, part)
        if config.checkpointing:
            _checkpointed(encoder).activation_checkpointing_disable()
        encoder.fixed_statistics = False
        if config.cached:
            encoder.divide(None)
        encoder.frozen = getattr(model.config, part).frozen
        encoder.requires_grad_(True)
    for part in tune:  # after all are restored: one encoder may share the weights of the other
        encoder_of(model, part).freeze()
    _forget_digests(model)


def _forget_digests(model: AladinModel) -> None:
    """Forget the digests of both encoders, of which one may share the weights of the other."""
    for encoder in (model.image.encoder, model.text.encoder):
        encoder.forget_digest()


def _checkpointed(encoder: nn.Module) -> PreTrainedModel:
    """Find the network that can recompute its activations."""
    from transformers import PreTrainedModel  # takes seconds, and other stages do not need it

    for module in encoder.modules():
        if isinstance(module, PreTrainedModel) and module.supports_gradient_checkpointing:
            return module
    raise ConfigError("this encoder has no gradient checkpointing")


def part_of(parameter_name: str) -> Part | None:
    """Return the part that a parameter of the model, or of a task with the model, belongs to."""
    name = _IN_TASK.sub("", parameter_name)
    return next((part for prefix, part in _PREFIXES if name.startswith(prefix)), None)


def set_trained_parts(
    model: AladinModel,
    parts: tuple[Part, ...] | None,
    tune: Mapping[EncoderPart, TuneConfig] = MappingProxyType({}),
) -> None:
    """Train `parts` only, or all if None; an encoder stays frozen unless it is fine-tuned."""
    # Not `encoder.frozen`: an image encoder may share the text encoder's weights.
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
        chosen = fine_tuned_names(encoder, config)
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
    if part == "text_encoder":
        modules = list(model.text.encoder.modules())
    elif part in heads:
        head = heads[part]
        modules = list(head.modules()) if head is not None else []
    else:
        tower = towers[part]
        trunk = list(tower.trunk.modules()) if tower.trunk is not None else []
        modules = [*trunk, tower]
    # Children before parents, which may override them.
    for module in reversed(modules):
        reset = getattr(module, "reset_parameters", None)
        if reset is not None:
            reset()


def set_training_mode(model: AladinModel) -> None:
    """Put trained modules in training mode, all others in evaluation mode."""
    model.train()
    for module in model.modules():
        own = list(module.parameters())
        if own and not any(parameter.requires_grad for parameter in own):
            module.eval()

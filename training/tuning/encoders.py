"""An encoder from frozen to tuned and back."""

from __future__ import annotations

from collections.abc import Mapping
from typing import cast

from torch import nn
from transformers import PreTrainedModel

from aladin.encoders.frozen import Freezable
from aladin.errors import ConfigError
from aladin.model import AladinModel
from training.tuning.config import EncoderPart, TuneConfig
from training.tuning.layers import lr_factors, tuned_names
from training.tuning.lora import add_adapters, check_targets, merge_adapters


def encoder_of(model: AladinModel, part: EncoderPart) -> Freezable:
    """Return one of the network's encoders."""
    tower = model.image if part == "image_encoder" else model.text
    return cast(Freezable, tower.encoder)


def check_tuning(model: AladinModel, tune: Mapping[EncoderPart, TuneConfig]) -> None:
    """Find out whether a stage can tune the encoders as it says.

    Raises:
        ConfigError: it names layers or matrices that an encoder lacks, peft is not installed, or
            an encoder has no gradient checkpointing.
    """
    for part, config in tune.items():
        encoder = encoder_of(model, part)
        try:
            lr_factors(encoder, config)
            if config.mode == "lora":
                check_targets(encoder, config.targets)
            else:
                tuned_names(encoder, config)
            if config.checkpointing:
                _checkpointed(encoder)
        except ConfigError as error:
            raise ConfigError(f"tune.{part}: {error}") from error


def start_tuning(model: AladinModel, tune: Mapping[EncoderPart, TuneConfig]) -> None:
    """Thaw the encoders that a stage tunes, and give them adapters.

    Their batch norms stay on their running statistics: a batch says less of the photos of the
    world than those did that the encoder was trained on.

    Args:
        model: changed in place.
        tune: of the stage.

    Raises:
        ConfigError: see `check_tuning`.
    """
    for part, config in tune.items():
        encoder = encoder_of(model, part)
        encoder.frozen = False
        encoder.fixed_statistics = True
        if config.checkpointing:
            _checkpointed(encoder).activation_checkpointing_enable(
                activation_checkpointing_kwargs={"use_reentrant": False}
            )
        if config.mode == "lora":
            add_adapters(encoder, config)


def merge_tuned(model: AladinModel, tune: Mapping[EncoderPart, TuneConfig]) -> None:
    """Make a tuned network plain again: one weight for each of its matrices.

    Args:
        model: changed in place; its scores stay what they are.
        tune: of the stage.
    """
    for part, config in tune.items():
        if config.mode == "lora":
            merge_adapters(encoder_of(model, part))


def end_tuning(model: AladinModel, tune: Mapping[EncoderPart, TuneConfig]) -> None:
    """Leave the encoders as the network's configuration wants them.

    Args:
        model: changed in place, without adapters.
        tune: of the stage.
    """
    for part, config in tune.items():
        encoder = encoder_of(model, part)
        if config.checkpointing:
            _checkpointed(encoder).activation_checkpointing_disable()
        encoder.fixed_statistics = False
        encoder.frozen = getattr(model.config, part).frozen
        encoder.requires_grad_(True)
    for part in tune:  # once all are told: one encoder may share the weights of the other
        encoder_of(model, part).freeze()


def _checkpointed(encoder: nn.Module) -> PreTrainedModel:
    """Find the network that can compute its inner states twice."""
    for module in encoder.modules():
        if isinstance(module, PreTrainedModel) and module.supports_gradient_checkpointing:
            return module
    raise ConfigError("this encoder has no gradient checkpointing")

"""Low-rank adapters: put into an encoder for a stage, and added to its weights at its end.

LoRA (Hu et al. 2021): a matrix W is kept, and ``W + alpha / rank * B A`` computes in its place; B
starts at zero, so that nothing changes at first. Afterwards the sum is one matrix again.
"""

from __future__ import annotations

import importlib.util
from typing import Any

from torch import nn

from aladin_network.errors import ConfigError
from aladin_training.adapters.layers import find_layers
from aladin_training.config.stage import FineTuneConfig


def add_adapters(encoder: nn.Module, config: FineTuneConfig) -> None:
    """Put adapters into an encoder; all else of it is frozen.

    Args:
        encoder: changed in place; its parameters' names change, too.
        config: rank and targets.

    Raises:
        ConfigError: peft is not installed, or a target names no matrix of the encoder.
    """
    check_targets(encoder, config.targets)
    from peft import LoraConfig, inject_adapter_in_model

    settings = LoraConfig(
        r=config.rank,
        lora_alpha=config.alpha,  # pyright: ignore[reportArgumentType]  it only multiplies
        lora_dropout=config.dropout,
        target_modules=target_names(encoder, config.targets),
    )
    inject_adapter_in_model(settings, encoder)


def check_targets(encoder: nn.Module, targets: tuple[str, ...] | None) -> None:
    """Find out whether an encoder can have adapters.

    Raises:
        ConfigError: peft is not installed, or a target names no matrix of the encoder.
    """
    if importlib.util.find_spec("peft") is None:
        raise ConfigError('mode "lora" needs peft: pip install "aladin-search[lora]"')
    target_names(encoder, targets)


def merge_adapters(encoder: nn.Module) -> None:
    """Add the adapters to the matrices that they change; the encoder is what it was before them.

    Args:
        encoder: with adapters or without.
    """
    for name, module in list(encoder.named_modules()):
        merge, base = getattr(module, "merge", None), getattr(module, "base_layer", None)
        if merge is None or not isinstance(base, nn.Module):
            continue
        merge()
        parent, _, own_name = name.rpartition(".")
        setattr(encoder.get_submodule(parent), own_name, base)
    if hasattr(encoder, "peft_config"):
        delattr(encoder, "peft_config")


def target_names(encoder: nn.Module, targets: tuple[str, ...] | None) -> list[str]:
    """Return the names of the modules that get an adapter.

    Args:
        encoder: without adapters.
        targets: ends of names; None: all matrices of the layers.

    Raises:
        ConfigError: a target names no matrix.
    """
    matrices = [name for name, module in encoder.named_modules() if _is_matrix(module)]
    if targets is None:
        stack = find_layers(encoder)
        return [name for name in matrices if stack is None or name.startswith(stack.prefix)]
    chosen: list[str] = []
    for target in targets:
        named = [name for name in matrices if f".{name}".endswith(f".{target}")]
        if not named:
            known = sorted({name.rpartition(".")[2] for name in matrices})
            raise ConfigError(f"no matrix is named {target!r}, known are {known}")
        chosen += named
    return chosen


def _is_matrix(module: Any) -> bool:
    if isinstance(module, nn.Conv2d):
        return module.kernel_size == (1, 1) and module.groups == 1
    return isinstance(module, nn.Linear)

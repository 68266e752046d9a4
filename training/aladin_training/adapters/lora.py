"""Low-rank adapters: added to an encoder for a stage, and merged into its weights at its end.

LoRA (Hu et al. 2021): a matrix W is frozen and replaced by ``W + alpha / rank * B A``. B starts at
zero, so that nothing changes at first; afterwards the sum becomes one matrix again.
"""

from __future__ import annotations

from typing import Any

from torch import nn

from aladin_network.encoders.divided_tower import find_layers
from aladin_network.errors import ConfigError, need_packages
from aladin_training.config.tune import TuneConfig


def add_adapters(encoder: nn.Module, config: TuneConfig) -> None:
    """Add adapters to an encoder and freeze everything else in it."""
    check_targets(encoder, config.targets)
    from peft import LoraConfig, inject_adapter_in_model

    settings = LoraConfig(
        r=config.rank,
        lora_alpha=config.alpha,  # pyright: ignore[reportArgumentType]  it is only a factor
        lora_dropout=config.dropout,
        target_modules=target_names(encoder, config.targets),
    )
    inject_adapter_in_model(settings, encoder)


def check_targets(encoder: nn.Module, targets: tuple[str, ...] | None) -> None:
    """Check that an encoder can have adapters."""
    check_peft()
    target_names(encoder, targets)


def check_peft() -> None:
    """Check that the package of the adapters is installed."""
    need_packages('mode "lora"', "peft")


def merge_adapters(encoder: nn.Module) -> None:
    """Merge the adapters into the matrices that they change, which restores the encoder's form."""
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
    """Return the modules that get an adapter: of such endings, or by None all of the layers."""
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

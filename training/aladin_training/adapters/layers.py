"""The layers of any encoder: which of them are fine-tuned, and at which learning rate.

The modules of the transformers library are registered in the order in which they compute:
embeddings (a stem), a list of layers (blocks, stages), then norms and projections.
"""

from __future__ import annotations

from torch import nn

from aladin_network.encoders.divided_tower import LayerStack, find_layers
from aladin_network.errors import ConfigError
from aladin_training.config.tune import TuneConfig


def parameter_depths(encoder: nn.Module) -> dict[str, int]:
    """Return each parameter's depth: 0 before the layers, 1 to L in them, L + 1 behind."""
    stack = _layers_of(encoder)
    depths: dict[str, int] = {}
    depth = 0
    for name, _ in encoder.named_parameters():
        if name.startswith(stack.prefix):
            depths[name] = 1 + int(name.removeprefix(stack.prefix).partition(".")[0])
            depth = stack.depth + 1  # for whatever follows
        else:
            depths[name] = depth
    return depths


def fine_tuned_names(encoder: nn.Module, config: TuneConfig) -> frozenset[str]:
    """Return the names of the parameters that a stage trains."""
    names = [name for name, _ in encoder.named_parameters()]
    if config.mode == "full":
        return frozenset(names)
    if config.mode == "lora":
        return frozenset(name for name in names if ".lora_" in name)
    stack = _layers_of(encoder)
    layers = config.layers or stack.depth
    if layers > stack.depth:
        raise ConfigError(f"layers is {layers}, the encoder has {stack.depth}")
    depths = parameter_depths(encoder)
    return frozenset(name for name in names if depths[name] > stack.depth - layers)


def lr_factors(encoder: nn.Module, config: TuneConfig) -> dict[str, float]:
    """Return each parameter's learning rate relative to the encoder's, by its name.

    The last of L layers and what follows it have the full rate, layer l has
    ``lr_decay ** (L - l)`` of it, the embeddings ``lr_decay ** L``.
    """
    if config.lr_decay == 1:
        return {name: 1.0 for name, _ in encoder.named_parameters()}
    count = _layers_of(encoder).depth
    return {
        name: config.lr_decay ** max(0, count - depth)
        for name, depth in parameter_depths(encoder).items()
    }


def _layers_of(encoder: nn.Module) -> LayerStack:
    stack = find_layers(encoder)
    if stack is None:
        raise ConfigError('this encoder has no list of layers; tune it with mode "full"')
    return stack

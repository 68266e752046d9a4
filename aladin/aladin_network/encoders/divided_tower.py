"""A tower divided at one of its layers: what enters the layer, and the rest of the network.

While a stage of training tunes the last layers alone, the states that enter them do not change:
they are computed once for each photo, and every step begins with them.
"""

from __future__ import annotations

import copy
import itertools
from typing import Any, NamedTuple, cast

import torch
from torch import Tensor, nn

from aladin_network.encoders.base import LayerStates, digest_of
from aladin_network.errors import ConfigError


class LayerStack(NamedTuple):
    """Location of an encoder's layers.

    Attributes:
        prefix: Common prefix of their parameters' names, with a dot at its end.
    """

    prefix: str
    depth: int


def find_layers(encoder: nn.Module) -> LayerStack | None:
    """Find the list of layers that holds most of an encoder's weights.

    Args:
        encoder: Any module.

    Returns:
        The list, not nested inside another one, or None if the encoder has no list.
    """
    found: dict[str, nn.ModuleList] = {}
    for name, module in encoder.named_modules():
        inside = any(name.startswith(f"{outer}.") for outer in found)
        if isinstance(module, nn.ModuleList) and len(module) and not inside:
            found[name] = module
    if not found:
        return None
    largest = max(found, key=lambda name: _size(found[name]))
    return LayerStack(f"{largest}.", len(found[largest]))


class DividedTower:
    """A network of the transformers library that can begin at its layer `first`; it is not changed.

    Whether its layers pass on more than states is for the caller to find out, by a comparison.
    """

    def __init__(self, network: nn.Module, last_layers: int) -> None:
        stack = find_layers(network)
        if stack is None or not 0 < last_layers < stack.depth:
            found = "no list of layers" if stack is None else f"{stack.depth} layers"
            raise ConfigError(
                f"expected an encoder of more than {last_layers} layers to keep the states below "
                f"them, got one with {found}"
            )
        self.first = stack.depth - last_layers
        self._network = network
        self._layer = network.get_submodule(f"{stack.prefix}{self.first - 1}")
        self._entrance = _Entrance()
        path = stack.prefix.split(".")[:-1]
        self._rest = _without_start(network, path, self.first, self._entrance)
        self._prefix = f"{stack.prefix}{self.first}."
        self._shape: torch.Size | None = None

    def states(self, photos: Tensor, **options: Any) -> LayerStates:
        """Run the layers before the division."""
        values = self._values(photos, **options)
        if values.ndim == 4:  # a convolutional map
            self._shape = values.shape[1:]
            values = values.flatten(2).transpose(1, 2)  # (batch, cells, dim)
        return LayerStates(values)

    def enter(self, states: LayerStates) -> nn.Module:
        """Return the network as it continues from states, for one call.

        Its weights are those of the whole network, and it takes any `pixel_values`. The hidden
        states before the division are not known: it returns the given ones in their place.
        """
        values = states.values
        if self._shape is not None:
            values = values.transpose(1, 2).unflatten(2, self._shape[1:])
            values = values.contiguous(memory_format=torch.channels_last)
        self._entrance.states = values
        return self._rest

    def digest(self) -> str:
        """Return the sha256 of all weights and buffers before the division."""
        weights = self._network.state_dict()  # in the order in which modules compute
        before = itertools.takewhile(lambda name: not name.startswith(self._prefix), weights)
        return digest_of({name: weights[name] for name in before})

    def _values(self, photos: Tensor, **options: Any) -> Tensor:
        reached: list[Tensor] = []

        def stop(_: nn.Module, __: Any, output: Any) -> None:
            reached.append(output[0] if isinstance(output, tuple) else output)
            raise _Reached

        handle = self._layer.register_forward_hook(stop)
        try:
            self._network(pixel_values=photos, **options)
        except _Reached:
            return reached[0]
        finally:
            handle.remove()
        raise ConfigError("this encoder does not run its layers one after the other")


class _Reached(Exception):  # noqa: N818  no error: it ends a forward pass early
    """Raised where a forward pass need not go on."""


class _Entrance:
    """The states that the next pass begins with."""

    states: Tensor


class _Given(nn.Module):
    """Stands for a module that is not computed: returns the states that the pass begins with."""

    def __init__(self, entrance: _Entrance, replaced: nn.Module) -> None:
        super().__init__()
        self._entrance = entrance
        self._replaced = (replaced,)  # in a tuple: its weights are not this module's

    def __getattr__(self, name: str) -> Any:
        try:
            return super().__getattr__(name)
        except AttributeError:
            return getattr(self.__dict__["_replaced"][0], name)

    def forward(self, *_: Any, **__: Any) -> Tensor:
        """Return the states, whatever the arguments."""
        return self._entrance.states


def _without_start(
    module: nn.Module, path: list[str], first: int, entrance: _Entrance
) -> nn.Module:
    """Copy the containers on the way to the layers, with stand-ins for all that comes before."""
    copied = copy.copy(module)
    children = dict(module._modules)  # pyright: ignore[reportPrivateUsage]
    copied._modules = cast(Any, children)  # pyright: ignore[reportPrivateUsage]
    if not path:  # the list itself
        for number in range(first):
            children[str(number)] = _Given(entrance, module.get_submodule(str(number)))
        return copied
    for name in children:
        child = module.get_submodule(name)
        if name == path[0]:
            children[name] = _without_start(child, path[1:], first, entrance)
            break
        children[name] = _Given(entrance, child)
    return copied


def _size(module: nn.Module) -> int:
    return sum(parameter.numel() for parameter in module.parameters())

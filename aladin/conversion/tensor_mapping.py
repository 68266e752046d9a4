"""From one network's tensors to another's: every one is taken, left for a reason, or refused."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from aladin.errors import CheckpointError

# Errors name this many tensors; the file is as wrong with three as with two hundred.
_NAMED = 5


class Rename(NamedTuple):
    """How tensors of ours are called in a foreign checkpoint.

    Attributes:
        ours: regular expression of whole names.
        theirs: their name; ``\\1`` is what the first group of `ours` matched.
    """

    ours: str
    theirs: str


class Left(NamedTuple):
    """Tensors that a foreign checkpoint may hold and this network has no place for.

    Attributes:
        theirs: regular expression of whole names.
        reason: why nothing is lost without them.
    """

    theirs: str
    reason: str


class Taken(NamedTuple):
    """A tensor that was taken over.

    Attributes:
        source: its name in the file.
        target: its name in the new checkpoint.
        shape: of both.
    """

    source: str
    target: str
    shape: tuple[int, ...]


class LeftOut(NamedTuple):
    """A part of the file that was not taken over.

    Attributes:
        source: its name in the file.
        reason: why.
        shape: of a tensor; None: it is none.
    """

    source: str
    reason: str
    shape: tuple[int, ...] | None = None


@dataclass(frozen=True)
class MappedTensors:
    """What a foreign checkpoint becomes.

    Attributes:
        weights: float32 tensors by our names.
        taken: where each of them comes from.
        left: what stays behind.
        new: tensors of ours that the file does not know; they keep their random start.
    """

    weights: dict[str, Tensor]
    taken: list[Taken]
    left: list[LeftOut]
    new: list[str]


def map_tensors(
    tensors: Mapping[str, Tensor],
    expected: Mapping[str, Tensor],
    renames: Sequence[Rename],
    left: Sequence[Left],
    where: str,
) -> MappedTensors:
    """Find each tensor of ours in a foreign checkpoint.

    Args:
        tensors: of the foreign checkpoint, by its names.
        expected: of our network, by ours; only the shapes are read.
        renames: the first that matches one of our names says what it is called there; a tensor of
            ours that none matches is new.
        left: which of their tensors may stay behind.
        where: names the file in errors.

    Raises:
        CheckpointError: a tensor is missing, has another shape, is not a plain one of finite
            floating-point numbers, or is neither known nor to be left; it is named.
    """
    sources = {_modern(name): name for name in tensors}
    if len(sources) < len(tensors):
        twice = sorted(set(tensors) - set(sources.values()))
        raise CheckpointError(f"{where}: under their old and new names there are both {twice}")
    wanted = {ours: _their_name(ours, renames) for ours in expected}
    named = {theirs: ours for ours, theirs in wanted.items() if theirs is not None}
    reasons = {name: _reason(name, left) for name in sources if name not in named}

    missing = sorted(named.keys() - sources.keys())
    unknown = sorted(sources[name] for name, reason in reasons.items() if reason is None)
    if missing or unknown:
        raise CheckpointError(f"{where}: {_what_differs(missing, unknown)}")

    weights: dict[str, Tensor] = {}
    taken: list[Taken] = []
    for theirs, ours in named.items():
        source = sources[theirs]
        weights[ours] = _checked(tensors[source], expected[ours], f"{where}: tensor {source}")
        taken.append(Taken(source, ours, tuple(expected[ours].shape)))
    return MappedTensors(
        weights=weights,
        taken=taken,
        left=[
            LeftOut(sources[name], reason, tuple(tensors[sources[name]].shape))
            for name, reason in reasons.items()
            if reason is not None
        ],
        new=[ours for ours, theirs in wanted.items() if theirs is None],
    )


def _modern(name: str) -> str:
    """Call a layer norm's vectors as torch does; BERT's first checkpoints had other names."""
    name = re.sub(r"LayerNorm\.gamma$", "LayerNorm.weight", name)
    return re.sub(r"LayerNorm\.beta$", "LayerNorm.bias", name)


def _their_name(ours: str, renames: Sequence[Rename]) -> str | None:
    for rename in renames:
        match = re.fullmatch(rename.ours, ours)
        if match is not None:
            return match.expand(rename.theirs)
    return None


def _reason(theirs: str, left: Sequence[Left]) -> str | None:
    return next((each.reason for each in left if re.fullmatch(each.theirs, theirs)), None)


def _what_differs(missing: Sequence[str], unknown: Sequence[str]) -> str:
    lists = (("missing", missing), ("unknown", unknown))
    return "; ".join(f"{what} tensors: {_some(names)}" for what, names in lists if names)


def _some(names: Sequence[str]) -> str:
    more = len(names) - _NAMED
    return ", ".join(names[:_NAMED]) + (f" and {more} more" if more > 0 else "")


def _checked(tensor: Tensor, expected: Tensor, where: str) -> Tensor:
    """Bring a tensor to float32, refusing one that cannot be ours.

    Raises:
        CheckpointError: it has another shape, or is not a plain one of finite numbers.
    """
    if tensor.layout != torch.strided or not tensor.is_floating_point():
        raise CheckpointError(f"{where}: expected floating-point numbers, got {tensor.dtype}")
    if tensor.shape != expected.shape:
        shapes = f"expected shape {tuple(expected.shape)}, got {tuple(tensor.shape)}"
        raise CheckpointError(f"{where}: {shapes}")
    if not bool(torch.isfinite(tensor).all()):
        raise CheckpointError(f"{where}: expected finite numbers, got NaN or infinity")
    return tensor.detach().to(torch.float32)

"""Reading, mapping and reporting of the tensors of a foreign checkpoint.

Each tensor is taken, skipped for a stated reason, or refused. Pickled files are read by torch's
restricted reader, which builds tensors and plain containers only: unpickling without it could call
any function.
"""

from __future__ import annotations

import json
import pickle
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import torch
from torch import Tensor

from aladin_network.checkpoint import save_checkpoint
from aladin_network.checkpoint_files import Provenance
from aladin_network.errors import CheckpointError, ConfigError
from aladin_network.files import check_folder_writable, sha256_of
from aladin_network.model import AladinModel

# Number of tensors named in an error; more would not help.
_NAMED = 5


class Rename(NamedTuple):
    """Names of a group of our tensors in a foreign checkpoint.

    Attributes:
        theirs: Name of the tensor in the file; ``\\1`` is what the first group of `ours` matched.
    """

    ours: str
    theirs: str


class Left(NamedTuple):
    """Tensors that a foreign checkpoint may contain and this network does not use.

    Attributes:
        reason: Reason why nothing is lost without these tensors.
    """

    theirs: str
    reason: str


class Taken(NamedTuple):
    """A tensor that was taken over."""

    source: str
    target: str
    shape: tuple[int, ...]


class SkippedSummary(NamedTuple):
    """A part of the file that was not taken over.

    Attributes:
        shape: Tensor shape, or None if the entry is not a tensor.
    """

    source: str
    reason: str
    shape: tuple[int, ...] | None = None


@dataclass(frozen=True, kw_only=True)
class MappingReport:
    """What became of the tensors of a foreign checkpoint.

    Attributes:
        new: Our tensors that the file does not contain; they keep their random initial values.
    """

    taken: Sequence[Taken]
    left: Sequence[SkippedSummary]
    new: Sequence[str]


class MappedTensors(NamedTuple):
    """Float32 tensors of a foreign checkpoint by our names, and where they come from."""

    weights: dict[str, Tensor]
    report: MappingReport


def map_tensors(
    tensors: Mapping[str, Tensor],
    expected: Mapping[str, Tensor],
    renames: Sequence[Rename],
    left: Sequence[Left],
    where: str,
) -> MappedTensors:
    """Find each tensor of ours in a foreign checkpoint; what does not fit is named in the error.

    The first of `renames` that matches one of our names gives its name in the file; a tensor of
    ours that matches none is new. Of `expected` only the shapes are read.
    """
    # BERT's first checkpoints name a layer norm's vectors otherwise than torch does.
    modern = {"LayerNorm.gamma": "LayerNorm.weight", "LayerNorm.beta": "LayerNorm.bias"}
    sources = {
        re.sub(r"LayerNorm\.(gamma|beta)$", lambda old: modern[old[0]], name): name
        for name in tensors
    }
    if len(sources) < len(tensors):
        twice = sorted(set(tensors) - set(sources.values()))
        raise CheckpointError(f"{where}: under their old and new names there are both {twice}")
    wanted = {ours: _their_name(ours, renames) for ours in expected}
    named = {theirs: ours for ours, theirs in wanted.items() if theirs is not None}
    reasons = {
        name: next((each.reason for each in left if re.fullmatch(each.theirs, name)), None)
        for name in sources
        if name not in named
    }

    missing = sorted(named.keys() - sources.keys())
    unknown = sorted(sources[name] for name, reason in reasons.items() if reason is None)
    wrong = [
        f"{what} tensors: {', '.join(names[:_NAMED])}"
        + (f" and {len(names) - _NAMED} more" if len(names) > _NAMED else "")
        for what, names in (("missing", missing), ("unknown", unknown))
        if names
    ]
    if wrong:
        raise CheckpointError(f"{where}: {'; '.join(wrong)}")

    weights: dict[str, Tensor] = {}
    taken: list[Taken] = []
    for theirs, ours in named.items():
        source = sources[theirs]
        weights[ours] = _checked(tensors[source], expected[ours], f"{where}: tensor {source}")
        taken.append(Taken(source, ours, tuple(expected[ours].shape)))
    skipped = [
        SkippedSummary(sources[name], reason, tuple(tensors[sources[name]].shape))
        for name, reason in reasons.items()
        if reason is not None
    ]
    new = [ours for ours, theirs in wanted.items() if theirs is None]
    return MappedTensors(weights, MappingReport(taken=taken, left=skipped, new=new))


def _their_name(ours: str, renames: Sequence[Rename]) -> str | None:
    for rename in renames:
        match = re.fullmatch(rename.ours, ours)
        if match is not None:
            return match.expand(rename.theirs)
    return None


def _checked(tensor: Tensor, expected: Tensor, where: str) -> Tensor:
    """Convert a tensor to float32; refuse one that does not fit."""
    if tensor.layout != torch.strided or not tensor.is_floating_point():
        raise CheckpointError(f"{where}: expected floating-point numbers, got {tensor.dtype}")
    if tensor.shape != expected.shape:
        shapes = f"expected shape {tuple(expected.shape)}, got {tuple(tensor.shape)}"
        raise CheckpointError(f"{where}: {shapes}")
    if not bool(torch.isfinite(tensor).all()):
        raise CheckpointError(f"{where}: expected finite numbers, got NaN or infinity")
    return tensor.detach().to(torch.float32)


def read_torch_file(path: Path, harmless: Sequence[type] = ()) -> object:
    """Read a file of ``torch.save``, in the current format or that before torch 1.6.

    `harmless` are classes that may occur besides tensors and plain containers.
    """
    if not path.is_file():
        raise CheckpointError(f"{path}: no such file")
    try:
        with torch.serialization.safe_globals(list(harmless)):
            return torch.load(path, map_location="cpu", weights_only=True)
    except pickle.UnpicklingError as error:
        culprit = re.search(r"GLOBAL (\S+)", str(error))
        if culprit is None:
            reason = "it is no checkpoint of tensors and plain values"
        else:
            reason = (
                f"it holds {culprit[1]}, which only running the file's own code could build; "
                "tensors and plain values are read, nothing else"
            )
        raise CheckpointError(f"{path}: refused: {reason}") from None
    except Exception as error:  # a file made to do harm, or cut short, raises anything
        first = str(error).strip().split("\n")[0]
        reason = first or type(error).__name__
        raise CheckpointError(f"{path}: cannot be read as a torch checkpoint ({reason})") from None


def named_tensors(value: object, where: str) -> dict[str, Tensor]:
    """Check that a value is a state dict, and return its tensors by name."""
    if not isinstance(value, Mapping):
        raise CheckpointError(f"{where}: expected tensors by name, found {type(value).__name__}")
    tensors: dict[str, Tensor] = {}
    for name, tensor in value.items():
        if not isinstance(name, str) or not isinstance(tensor, Tensor):
            kind = type(tensor).__name__
            raise CheckpointError(f"{where}: expected tensors by name, {name!r} is a {kind}")
        tensors[name] = tensor
    if not tensors:
        raise CheckpointError(f"{where}: expected tensors by name, found none")
    return tensors


@dataclass(frozen=True, kw_only=True)
class ConversionReport(MappingReport):
    """Result of converting a foreign checkpoint.

    Attributes:
        source: File that the tensors were read from.
        out: Checkpoint that was written.
        seed: Seed of the random numbers that initialise the new tensors, or None if there are none.
    """

    source: Path
    out: Path
    seed: int | None


def refuse_existing(out: Path) -> None:
    """Refuse to replace an existing output, which may be the conversion's own source.

    Raises:
        ConfigError: If `out` exists and is not an empty folder.
        InputError: If `out` cannot be written to.
    """
    if out.exists() and not (out.is_dir() and next(out.iterdir(), None) is None):
        raise ConfigError(f"{out}: there is something already; choose another folder")
    check_folder_writable(out)


def write_converted(
    model: AladinModel,
    mapped: MappedTensors,
    source: Path,
    out: Path,
    seed: int | None,
    left: Sequence[SkippedSummary] = (),
    *,
    alignment_trained: bool,
) -> ConversionReport:
    """Fill a network with a foreign checkpoint's tensors and write it."""
    model.load_state_dict(model.state_dict() | mapped.weights)
    origin = {"converted_from": {"file": source.name, "sha256": sha256_of(source)}, "seed": seed}
    provenance = Provenance(recipe=json.dumps(origin), stage="convert")
    save_checkpoint(out, model, provenance=provenance, alignment_trained=alignment_trained)
    return ConversionReport(
        source=source,
        out=out,
        taken=mapped.report.taken,
        left=[*mapped.report.left, *left],
        new=mapped.report.new,
        seed=seed,
    )

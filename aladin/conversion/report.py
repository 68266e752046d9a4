"""What became of a foreign checkpoint, and writing it as one of this project's."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from aladin.checkpoint import Provenance, save_checkpoint
from aladin.conversion.tensor_mapping import LeftOut, MappedTensors, Taken
from aladin.errors import ConfigError
from aladin.model import AladinModel


@dataclass(frozen=True, kw_only=True)
class ConversionReport:
    """What became of a foreign checkpoint.

    Attributes:
        source: the file of its tensors.
        out: the checkpoint that was written.
        taken: where each tensor of the new checkpoint comes from.
        left: what stays behind, and why.
        new: tensors of the new checkpoint that the file does not know.
        seed: of the random numbers with which those start; None: nothing is new.
    """

    source: Path
    out: Path
    taken: Sequence[Taken]
    left: Sequence[LeftOut]
    new: Sequence[str]
    seed: int | None


def refuse_existing(out: Path) -> None:
    """Keep a conversion from replacing what somebody may need, its own source included.

    Raises:
        ConfigError: `out` is there and not an empty folder.
    """
    if out.exists() and not (out.is_dir() and next(out.iterdir(), None) is None):
        raise ConfigError(f"{out}: there is something already; choose another folder")


def write_converted(
    model: AladinModel,
    mapped: MappedTensors,
    source: Path,
    out: Path,
    seed: int | None,
    left: Sequence[LeftOut] = (),
) -> ConversionReport:
    """Fill a network with a foreign checkpoint's tensors and write it.

    Args:
        model: built for these tensors.
        mapped: its tensors.
        source: the file they were read from.
        out: folder of the new checkpoint.
        seed: with which the model's other tensors were drawn; None: there are none.
        left: parts of the file besides its tensors that stay behind.
    """
    model.load_state_dict(model.state_dict() | mapped.weights)
    with source.open("rb") as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
    origin = {"converted_from": {"file": source.name, "sha256": digest}, "seed": seed}
    save_checkpoint(out, model, provenance=Provenance(recipe=json.dumps(origin), stage="convert"))
    return ConversionReport(
        source=source,
        out=out,
        taken=mapped.taken,
        left=[*mapped.left, *left],
        new=mapped.new,
        seed=seed,
    )

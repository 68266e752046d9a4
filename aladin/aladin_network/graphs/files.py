"""The exported graphs in a checkpoint.

CHECKPOINT/onnx/
  manifest.json   what the graphs are of, how each is fed, and size and SHA-256 of the other files
  image.onnx      image tower and heads, and its weights in image.onnx.data
  text.onnx       text tower and heads, and its weights in text.onnx.data

The folder is written completely or not at all. Graphs that were exported from a checkpoint's
weights have the inputs of its encoder's batches, by the names of their parts, and the outputs
`item_embedding`, `item_tokens` and `item_mask`, as in
`aladin_network.scoring.scores.EncodedBatch`. Graphs from elsewhere are in image/ and text/, under
their own names; their inputs have names and types of their own, and their output is an embedding.
A batch of photos has one photo, one of texts any number, or one as well.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Literal

from numpy.typing import NDArray
from pydantic import ConfigDict

from aladin_network.checkpoint_files import GRAPHS, read_description
from aladin_network.config import STRICT, dump_config, parse_config
from aladin_network.encoders.pixels import CellLayout
from aladin_network.errors import CheckpointError
from aladin_network.files import (
    FileEntry,
    describe_files,
    recover_folder,
    sha256_of,
    write_json,
)
from aladin_network.sources.limits import check_model_folder
from aladin_network.types import RGB, Modality, Part

SCHEMA_VERSION = 2
OUTPUTS = ("item_embedding", "item_tokens", "item_mask")
Number = Literal["float32", "float16", "uint8", "int32", "int64", "bool"]

_MANIFEST = "manifest.json"
_AGAIN = "export it again with `aladin export onnx`"


@dataclass(frozen=True, kw_only=True)
class GraphInput:
    """What a graph takes under one name: a part of a batch, as numbers of a type."""

    part: Part
    number: Number


@dataclass(frozen=True, kw_only=True)
class GraphForm:
    """How one graph is fed and read.

    Attributes:
        file: Path of the graph in the folder.
        inputs: Inputs by name.
        outputs: `OUTPUTS`, or the name of an embedding, which need not be normalised.
        batches: Whether it takes several items at once.
    """

    file: str
    inputs: dict[str, GraphInput]
    outputs: tuple[str, ...]
    batches: bool

    @property
    def takes_bytes(self) -> bool:
        """Whether photos are given as bytes, and normalised by the graph."""
        return any(each.part == RGB for each in self.inputs.values())


@dataclass(frozen=True, kw_only=True)
class GraphManifest:
    """Content of manifest.json.

    Attributes:
        model_id: SHA-256 of the weights that the graphs were exported from, or None if there are
            no others.
        prepares: SHA-256 of the tokenizer and of the preprocessing, which belong to graphs from
            elsewhere as their weights do; else None.
        image: What a photo's cells are, or None where there is one embedding alone.
        forms: How the graph of each modality is fed.
    """

    __pydantic_config__: ClassVar[ConfigDict] = STRICT

    schema_version: int
    model_id: str | None
    prepares: str | None = None
    image: CellLayout | None
    text_dim: int
    forms: dict[Modality, GraphForm]
    versions: dict[str, str]
    files: dict[str, FileEntry]


def own_form(modality: Modality, inputs: Mapping[str, NDArray[Any]]) -> GraphForm:
    """Return the form of an exported graph, whose inputs have the names of the batch's parts."""
    described = {name: {"part": name, "number": str(part.dtype)} for name, part in inputs.items()}
    data = {
        "file": f"{modality}.onnx",
        "inputs": described,
        "outputs": OUTPUTS,
        "batches": modality == "text",
    }
    return parse_config(GraphForm, data, f"graph of the {modality} tower")


def describe_graphs(folder: Path) -> dict[str, FileEntry]:
    """Return size and SHA-256 of all files below a folder but the manifest."""
    files = (path.relative_to(folder) for path in folder.rglob("*") if path.is_file())
    return describe_files(folder, (file.as_posix() for file in files if file.name != _MANIFEST))


def write_manifest(folder: Path, manifest: GraphManifest) -> None:
    write_json(folder / _MANIFEST, dump_config(manifest))


def read_graphs(checkpoint: Path, model_id: str) -> GraphManifest | None:
    """Read the manifest of a checkpoint's graphs, and check that its files are complete.

    Args:
        checkpoint: Folder of the checkpoint.
        model_id: SHA-256 of the checkpoint's weights.

    Returns:
        The manifest, or None if the checkpoint was not exported.

    Raises:
        CheckpointError: If the graphs are those of other weights, another version wrote them, or a
            file is missing or has another size.
    """
    folder = checkpoint / GRAPHS
    recover_folder(folder)
    if not folder.exists():
        return None
    check_model_folder(folder)
    path = folder / _MANIFEST
    try:
        manifest = read_description(path, GraphManifest, SCHEMA_VERSION, f"; {_AGAIN}")
    except FileNotFoundError as error:
        raise CheckpointError(f"{path}: no such file; {_AGAIN}") from error
    if manifest.model_id not in (model_id, None):
        raise CheckpointError(
            f"{folder}: exported from weights {manifest.model_id[:12]}, the checkpoint has "
            f"{model_id[:12]}; {_AGAIN}"
        )
    for name, entry in manifest.files.items():
        found = (folder / name).stat().st_size if (folder / name).is_file() else "no file"
        if found != entry.bytes:
            raise CheckpointError(
                f"{folder / name}: expected {entry.bytes} bytes, got {found}; {_AGAIN}"
            )
    return manifest


def check_graphs(checkpoint: Path, manifest: GraphManifest) -> None:
    """Compare the SHA-256 of all files with the manifest.

    Raises:
        CheckpointError: If a file differs.
    """
    for name, entry in manifest.files.items():
        path = checkpoint / GRAPHS / name
        if sha256_of(path) != entry.sha256:
            raise CheckpointError(f"{path}: damaged, its SHA-256 is not that of its manifest")

"""The exported graphs in a checkpoint.

CHECKPOINT/onnx/
  manifest.json   what the graphs were exported from, and size and SHA-256 of the other files
  image.onnx      image tower and heads, and its weights in image.onnx.data
  text.onnx       text tower and heads, and its weights in text.onnx.data

The folder is written completely or not at all. Each graph has the inputs of its encoder's batches,
by the names of their parts, and the outputs `item_embedding`, `item_tokens` and `item_mask`, as in
`aladin_network.scoring.scores.EncodedBatch`. A batch of photos has one photo, one of texts any
number.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from pydantic import ConfigDict

from aladin_network.checkpoint_files import read_description
from aladin_network.config import STRICT, dump_config
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
from aladin_network.types import Modality

GRAPHS = "onnx"
SCHEMA_VERSION = 1
OUTPUTS = ("item_embedding", "item_tokens", "item_mask")
# Input of an image graph whose batches have a single part.
PIXELS = "pixels"

_MANIFEST = "manifest.json"
_AGAIN = "export it again with `aladin export onnx`"


@dataclass(frozen=True, kw_only=True)
class GraphManifest:
    """Content of manifest.json.

    Attributes:
        model_id: SHA-256 of the weights that the graphs were exported from.
    """

    __pydantic_config__: ClassVar[ConfigDict] = STRICT

    schema_version: int
    model_id: str
    image: CellLayout
    text_dim: int
    versions: dict[str, str]
    files: dict[str, FileEntry]


def graph_path(checkpoint: Path, modality: Modality) -> Path:
    return checkpoint / GRAPHS / f"{modality}.onnx"


def describe_graphs(folder: Path) -> dict[str, FileEntry]:
    """Return size and SHA-256 of all files in a folder but the manifest."""
    names = (path.name for path in folder.iterdir() if path.name != _MANIFEST)
    return describe_files(folder, names)


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
    if manifest.model_id != model_id:
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

"""The files of a checkpoint but its weights: read without torch, and so without the network.

config.json         schema version, network, fusion, provenance
model.safetensors   all weights, frozen encoders included (`aladin_network.checkpoint`); missing
                    where the graphs come from elsewhere and are all there is
tokenizer.json      the text encoder's tokenizer
calibration.json    the calibration, once fitted (`aladin_network.calibration.calibration`)
correction.safetensors  the correction, once fitted (`aladin_network.scoring.hub_correction`)
onnx/               the graphs, once exported (`aladin_network.graphs.files`)

The calibration and the correction belong together (`aladin_network.calibration.fitted_files`).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar, Generic

from pydantic import ConfigDict
from tokenizers import Tokenizer
from typing_extensions import TypeVar

from aladin_network.config import STRICT, ModelConfig, parse_config
from aladin_network.errors import CheckpointError, ConfigError
from aladin_network.files import read_json, recover_folder, sha256_of
from aladin_network.inference import Network
from aladin_network.scoring.fusion import Fusion
from aladin_network.sources.limits import check_model_folder

SCHEMA_VERSION = 1
CONFIG, WEIGHTS, TOKENIZER = "config.json", "model.safetensors", "tokenizer.json"
# The graphs, and what describes them.
GRAPHS = "onnx"
GRAPH_MANIFEST = f"{GRAPHS}/manifest.json"
# Required files of a checkpoint with weights; copying a checkpoint means copying these.
CHECKPOINT_FILES = (CONFIG, WEIGHTS, TOKENIZER)

T = TypeVar("T")
N = TypeVar("N", bound=Network, covariant=True, default=Network)


@dataclass(frozen=True, kw_only=True)
class Provenance:
    """Origin of a checkpoint.

    Attributes:
        commit: Commit of the code that trained it, "unknown" outside a repository.
        step: Optimizer steps of that stage.
        validation: Metrics by which this checkpoint was chosen.
    """

    commit: str = "unknown"
    recipe: str = ""
    stage: str = ""
    step: int = 0
    validation: dict[str, float] = field(default_factory=dict)


@dataclass(frozen=True)
class ConfigFile:
    """Content of config.json."""

    __pydantic_config__: ClassVar[ConfigDict] = STRICT

    schema_version: int
    model: ModelConfig
    fusion: Fusion
    provenance: Provenance
    alignment_trained: bool


@dataclass(frozen=True)
class Checkpoint(Generic[N]):
    """A loaded checkpoint.

    Attributes:
        model: Network in evaluation mode, computed by torch or by graphs.
        model_id: SHA-256 of the weights file, or, without one, of what describes the graphs.
    """

    model: N
    config: ConfigFile
    model_id: str

    @property
    def fusion(self) -> Fusion:
        """Fitted fusion, or the papers' rule if there was no validation split to fit it on."""
        return self.config.fusion

    @property
    def provenance(self) -> Provenance:
        """Origin of the weights."""
        return self.config.provenance

    @property
    def alignment_trained(self) -> bool:
        """Whether the alignment was trained; else the embeddings order, without evidence."""
        return self.config.alignment_trained


def config_file_of(
    model: Network,
    fusion: Fusion | None = None,
    provenance: Provenance | None = None,
    *,
    alignment_trained: bool = True,
) -> ConfigFile:
    """Describe a network as in its checkpoint's config.json."""
    fusion, provenance = fusion or Fusion(), provenance or Provenance()
    return ConfigFile(SCHEMA_VERSION, model.config, fusion, provenance, alignment_trained)


def has_graphs_alone(folder: Path) -> bool:
    """Tell whether a checkpoint has graphs from elsewhere and no weights: torch cannot load it."""
    return not (folder / WEIGHTS).exists() and (folder / GRAPH_MANIFEST).exists()


def checkpoint_files(folder: Path) -> tuple[str, ...]:
    """Return the names of the files that tell a checkpoint from any other."""
    if not has_graphs_alone(folder):
        return CHECKPOINT_FILES
    return (CONFIG, GRAPH_MANIFEST, TOKENIZER)


def read_model_id(folder: Path) -> str:
    """Return the `model_id` of a checkpoint without loading its network.

    Raises:
        CheckpointError: If the weights cannot be read.
    """
    recover_folder(folder)
    path = folder / (GRAPH_MANIFEST if has_graphs_alone(folder) else WEIGHTS)
    try:
        return sha256_of(path)
    except OSError as error:
        if not folder.is_dir():
            hint = "`aladin convert` makes one of a pretrained model"
            raise CheckpointError(
                f"{folder}: no such folder, expected a checkpoint; {hint}"
            ) from None
        raise CheckpointError(f"{path}: cannot be read ({reason_of(error)})") from error


def read_config(folder: Path) -> ConfigFile:
    """Read config.json.

    Raises:
        CheckpointError: If the folder is no checkpoint, or the file cannot be read.
    """
    recover_folder(folder)
    check_model_folder(folder)
    try:
        return read_description(folder / CONFIG, ConfigFile, SCHEMA_VERSION)
    except FileNotFoundError:
        raise CheckpointError(f"{folder}: not a checkpoint, it has no {CONFIG}") from None


def read_description(path: Path, schema: type[T], version: int, hint: str = "") -> T:
    """Read a JSON file of a checkpoint with its `schema_version`; each error ends with `hint`."""
    try:
        data: Any = read_json(path)
        found = data.get("schema_version") if isinstance(data, dict) else None
        if found != version:
            reason = f"schema version {found}, expected {version}"
            raise CheckpointError(f"{path}: {reason}{hint}")
        return parse_config(schema, data, str(path))
    except FileNotFoundError:
        raise
    except ConfigError as error:
        raise CheckpointError(f"{error}{hint}") from error
    except (OSError, ValueError) as error:
        raise CheckpointError(f"{path}: cannot be read ({reason_of(error)}){hint}") from error


def read_tokenizer(folder: Path) -> Tokenizer:
    """Read tokenizer.json."""
    try:
        return Tokenizer.from_file(str(folder / TOKENIZER))
    except Exception as error:  # the tokenizers library raises bare Exception
        raise CheckpointError(f"{folder / TOKENIZER}: cannot be read ({error})") from error


def reason_of(error: Exception) -> str:
    """Return the system's own message, such as "Permission denied"; the path is named already."""
    return (isinstance(error, OSError) and error.strerror) or str(error)

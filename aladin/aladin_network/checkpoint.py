"""Checkpoints with their weights: writing them, and loading them to be computed by torch.

What a checkpoint consists of is described in `aladin_network.checkpoint_files`.

The safetensors library creates files with mode 0600 whatever the umask, and reports every failure
to open one as "No such file or directory"; the functions below set the permissions by the umask,
and report the system's error.
"""

from __future__ import annotations

import dataclasses
import stat
from collections.abc import Mapping
from pathlib import Path
from typing import Literal

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from tokenizers import Tokenizer
from torch import Tensor

from aladin_network.checkpoint_files import (
    CONFIG,
    TOKENIZER,
    WEIGHTS,
    Checkpoint,
    Provenance,
    config_file_of,
    has_graphs_alone,
    read_config,
    read_model_id,
    read_tokenizer,
    reason_of,
)
from aladin_network.config import ModelConfig, dump_config, with_frozen
from aladin_network.encoders.registry import image_encoder_class, text_encoder_class
from aladin_network.errors import CheckpointError, ConfigError
from aladin_network.files import atomic_folder, write_json
from aladin_network.model import AladinModel
from aladin_network.scoring.fusion import Fusion
from aladin_network.sources.limits import stored_shapes


def write_tensors(
    path: Path, tensors: Mapping[str, Tensor], metadata: Mapping[str, str] | None = None
) -> None:
    """Write a safetensors file with the permissions of any other new file.

    Args:
        path: File to write; it is replaced if it exists.
        tensors: Contiguous tensors that share no memory, by name.
        metadata: Text to store in the file's header, by name.

    Raises:
        OSError: If the file cannot be written.
        SafetensorError: If the tensors share memory or the library cannot write the file.
    """
    path.touch()
    # A file created just now has mode 0666 without the umask. The umask itself can only be read by
    # setting it, for all threads of the process.
    mode = stat.S_IMODE(path.stat().st_mode)
    save_file(dict(tensors), path, dict(metadata) if metadata else None)
    path.chmod(mode)


def read_tensors(path: Path, device: torch.device | str = "cpu") -> dict[str, Tensor]:
    """Read a safetensors file.

    Args:
        path: File to read.
        device: Device of the returned tensors.

    Raises:
        OSError: If the file cannot be opened: the system's own error, such as PermissionError.
        SafetensorError: If it is no safetensors file, or a damaged one.
    """
    check_readable(path)
    return load_file(path, device=str(device))


def check_readable(path: Path) -> None:
    """Open and close a file to check that it is readable.

    Raises:
        OSError: If it cannot be opened: the system's own error, such as PermissionError.
    """
    with path.open("rb"):
        pass


_MOST_NAME_CHARS = 200


def save_checkpoint(
    folder: Path,
    model: AladinModel,
    fusion: Fusion | None = None,
    provenance: Provenance | None = None,
    alignment_trained: bool = True,
) -> None:
    """Write a checkpoint atomically; an older one in its place is replaced.

    Args:
        folder: Folder of the checkpoint.
        model: The network.
        fusion: Constants fitted on the validation split.
        provenance: Origin of the weights.
        alignment_trained: Whether the alignment was trained.
    """
    config = config_file_of(model, fusion, provenance, alignment_trained=alignment_trained)
    weights = {name: _compact(value) for name, value in model.state_dict().items()}
    with atomic_folder(folder) as partial:
        write_json(partial / CONFIG, dump_config(config))
        write_tensors(partial / WEIGHTS, weights)
        model.text.encoder.tokenizer.save(str(partial / TOKENIZER))


def load_checkpoint(
    folder: Path,
    device: torch.device | str = "cpu",
    frozen: Mapping[Literal["image_encoder", "text_encoder"], bool] | None = None,
) -> Checkpoint[AladinModel]:
    """Load a checkpoint.

    Args:
        folder: Folder written by `save_checkpoint`.
        device: Device of the network.
        frozen: Encoders to freeze or not, overriding the checkpoint; this matters only in training.

    Raises:
        CheckpointError: If a file is missing or truncated, has another schema version, or has keys
            or tensors that this version does not know.
    """
    config = read_config(folder)
    if has_graphs_alone(folder):
        raise CheckpointError(
            f"{folder}: {config.model.image_encoder.source} has graphs alone, which ONNX Runtime"
            " computes on the CPU; torch, and so training, needs weights: take a model of the"
            " transformers library, such as openai/clip-vit-base-patch32"
        )
    if frozen:
        config = dataclasses.replace(config, model=with_frozen(config.model, frozen))
    tokenizer, path = read_tokenizer(folder), folder / WEIGHTS
    shapes = stored_shapes(path)
    try:
        # A network of other sizes than the weights' is found out before it takes memory.
        with torch.device("meta"):
            _check_shapes(_new_network(config.model, tokenizer), shapes, path)
        model = _new_network(config.model, tokenizer)
        model.load_state_dict(read_tensors(path))
    except ConfigError as error:
        raise CheckpointError(f"{folder / CONFIG}: {error}") from error
    except (OSError, SafetensorError, RuntimeError, MemoryError) as error:
        raise CheckpointError(f"{path}: cannot be read ({reason_of(error)})") from error
    model.has_tokens = config.alignment_trained
    return Checkpoint(model.eval().to(device), config, read_model_id(folder))


def _new_network(config: ModelConfig, tokenizer: Tokenizer) -> AladinModel:
    text_encoder = text_encoder_class(config)(config.text_encoder, tokenizer)
    image_encoder = image_encoder_class(config)(config.image_encoder, text_encoder)
    return AladinModel(config, image_encoder, text_encoder)


def _check_shapes(model: AladinModel, shapes: Mapping[str, tuple[int, ...]], path: Path) -> None:
    expected = {name: tuple(value.shape) for name, value in model.state_dict().items()}
    missing, unknown = sorted(expected.keys() - shapes), sorted(shapes.keys() - expected.keys())
    if missing or unknown:
        named = [[name[:_MOST_NAME_CHARS] for name in names[:5]] for names in (missing, unknown)]
        raise CheckpointError(f"{path}: missing tensors {named[0]}, unknown {named[1]}")
    for name, shape in shapes.items():
        if shape != expected[name]:
            raise CheckpointError(f"{path}: tensor {name}: expected {expected[name]}, got {shape}")


def _compact(value: torch.Tensor) -> torch.Tensor:
    """Store as float16 if that is exact, as for weights published in half precision."""
    value = value.detach().cpu().contiguous()
    if value.dtype == torch.float32:
        half = value.half()
        if torch.equal(half.float(), value):
            return half
    return value

"""Loading of a checkpoint to encode with: by its graphs if it has some, else by torch.

Torch is imported only where it computes.
"""

from __future__ import annotations

import logging
import os
from pathlib import Path
from typing import cast, get_args

from aladin_network.checkpoint_files import (
    GRAPHS,
    Checkpoint,
    has_graphs_alone,
    read_config,
    read_model_id,
    read_tokenizer,
)
from aladin_network.errors import (
    CheckpointError,
    ConfigError,
    install_line,
    is_installed,
    missing_package,
)
from aladin_network.graphs.files import read_graphs
from aladin_network.graphs.network import GraphNetwork
from aladin_network.graphs.onnx_runtime import ONNX_RUNTIME, GraphSource
from aladin_network.types import RuntimeSetting

_LOG = logging.getLogger(__name__)

# Variable that names what computes the network, a `RuntimeSetting`.
RUNTIME_VARIABLE = "ALADIN_RUNTIME"

# What the network needs where it has no graphs.
_FRAMEWORK = ("torch", "transformers")


def load_for_inference(folder: Path, device: str = "cpu") -> Checkpoint:
    """Load a checkpoint to encode with, not to train.

    The variable ALADIN_RUNTIME says what computes the network: `onnxruntime` or `torch`; with
    `auto`, its default, graphs on the CPU if the checkpoint has some and ONNX Runtime is installed,
    else torch.

    Args:
        folder: Folder of the checkpoint.
        device: Device of the network, as torch names it; graphs are for the CPU, and where there
            is nothing else they are taken whatever the device.

    Returns:
        The checkpoint; encodings of its graphs are those of torch to 1e-4.

    Raises:
        CheckpointError: If the checkpoint or its graphs cannot be read, or there are none although
            the variable asks for them.
        ConfigError: If the variable has another value, asks for graphs on another device, or names
            a package that is not installed; or if torch is needed and not installed.
    """
    if not uses_graphs(folder, device):
        return _load_by_torch(folder, device)
    if device.split(":")[0] != "cpu":
        _LOG.warning("%s has graphs alone, which encode on the CPU, not on %s", folder, device)
    return load_graphs(folder)


def uses_graphs(folder: Path, device: str = "cpu") -> bool:
    """Tell whether graphs compute a checkpoint's network, and not torch.

    Args:
        folder: Folder of the checkpoint, which may be missing.
        device: Device of the network, as torch names it.

    Raises:
        ConfigError: If the variable ALADIN_RUNTIME has another value, asks for graphs on another
            device, or names a package that is not installed.
    """
    wanted = runtime_setting()
    is_cpu = device.split(":")[0] == "cpu"
    if wanted == ONNX_RUNTIME:
        if not is_installed(ONNX_RUNTIME):
            raise ConfigError(missing_package("this runtime", ONNX_RUNTIME))
        if not is_cpu:
            raise ConfigError(f"{RUNTIME_VARIABLE}={wanted}: it computes on the CPU, not {device}")
        return True
    has_graphs = (is_cpu and (folder / GRAPHS).exists()) or has_graphs_alone(folder)
    return wanted == "auto" and has_graphs and is_installed(ONNX_RUNTIME)


def runtime_setting() -> RuntimeSetting:
    """Return the value of the variable ALADIN_RUNTIME."""
    value = os.environ.get(RUNTIME_VARIABLE, "auto")
    if value not in get_args(RuntimeSetting):
        known = ", ".join(get_args(RuntimeSetting))
        raise ConfigError(f"{RUNTIME_VARIABLE}: expected one of {known}, got {value!r}")
    return cast(RuntimeSetting, value)


def _load_by_torch(folder: Path, device: str) -> Checkpoint:
    read_config(folder)  # a folder that is no checkpoint is reported with or without torch
    if has_graphs_alone(folder):
        raise ConfigError(
            f"{folder}: this model has graphs alone, which {ONNX_RUNTIME} computes: it has to be"
            f" installed, and {RUNTIME_VARIABLE} must not be torch, got {runtime_setting()}"
        )
    try:
        from aladin_network.checkpoint import load_checkpoint

        return load_checkpoint(folder, device)
    except ModuleNotFoundError as error:
        if error.name not in _FRAMEWORK:
            raise
        raise ConfigError(
            f"{folder}: this checkpoint has no graphs that can be computed here, and the package "
            f"{error.name} is not installed; run `aladin export onnx CHECKPOINT` where it is, or "
            f"install it here: {install_line('train')}"
        ) from error


def load_graphs(folder: Path) -> Checkpoint[GraphNetwork]:
    """Load a checkpoint whose graphs encode, where ONNX Runtime is installed."""
    config = read_config(folder)
    model_id = read_model_id(folder)
    manifest = read_graphs(folder, model_id)
    if manifest is None:
        raise CheckpointError(f"{folder}: expected {GRAPHS}/, which `aladin export onnx` writes")
    source = GraphSource(folder, manifest.forms)
    model = GraphNetwork.of(config.model, manifest, read_tokenizer(folder), source)
    model.has_tokens = config.alignment_trained
    return Checkpoint(model, config, model_id)

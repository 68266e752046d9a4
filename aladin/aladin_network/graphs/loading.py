"""Loading of a checkpoint to encode with: by its graphs if it has some, else by torch.

Torch is imported only where it computes.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import cast, get_args

from aladin_network.checkpoint_files import (
    Checkpoint,
    as_checkpoint,
    read_config,
    read_model_id,
    read_tokenizer,
)
from aladin_network.errors import CheckpointError, ConfigError
from aladin_network.graphs.files import GRAPHS, read_graphs
from aladin_network.graphs.network import GraphNetwork
from aladin_network.graphs.runtimes import GraphSource, check_installed, installed_runtimes
from aladin_network.inference import multiplies_bfloat16
from aladin_network.types import GraphRuntime, Precision, RuntimeSetting

# Variable that names what computes the network, a `RuntimeSetting`.
RUNTIME_VARIABLE = "ALADIN_RUNTIME"

# What the network needs where it has no graphs.
_FRAMEWORK = ("torch", "transformers")


def load_for_inference(
    folder: Path, device: str = "cpu", *, precision: Precision = "float32"
) -> Checkpoint:
    """Load a checkpoint to encode with, not to train.

    The variable ALADIN_RUNTIME says what computes the network: `onnxruntime`, `openvino` or
    `torch`; with `auto`, its default, graphs on the CPU if the checkpoint has some and a package
    for them is installed, else torch.

    Args:
        folder: Folder of the checkpoint.
        device: Device of the network, as torch names it; graphs are for the CPU.
        precision: Precision in which photos and texts are encoded; bfloat16 by the graphs, which
            OpenVINO computes.

    Returns:
        The checkpoint; encodings of its graphs are those of torch to 1e-4.

    Raises:
        CheckpointError: If the checkpoint or its graphs cannot be read, or there are none although
            the variable asks for them.
        ConfigError: If the variable has another value, asks for graphs on another device, or names
            a package that is not installed; if torch is needed and not installed; or if nothing
            here encodes in the precision.
    """
    if precision == "bfloat16":
        _check_bfloat16(device)
        return load_graphs(folder, "openvino", precision)
    runtime = graph_runtime(folder, device)
    if runtime is not None:
        return load_graphs(folder, runtime)
    return _load_by_torch(folder, device)


def graph_runtime(folder: Path, device: str = "cpu") -> GraphRuntime | None:
    """Return what computes a checkpoint's graphs, or None if torch computes the network.

    Args:
        folder: Folder of the checkpoint, which may be missing.
        device: Device of the network, as torch names it.

    Raises:
        ConfigError: If the variable ALADIN_RUNTIME has another value, asks for graphs on another
            device, or names a package that is not installed.
    """
    wanted = runtime_setting()
    if wanted not in ("auto", "torch"):
        check_installed(wanted)
        if not _is_cpu(device):
            raise ConfigError(f"{RUNTIME_VARIABLE}={wanted}: it computes on the CPU, not {device}")
        return wanted
    has_graphs = wanted == "auto" and _is_cpu(device) and (folder / GRAPHS).exists()
    return next(iter(installed_runtimes()), None) if has_graphs else None


def _is_cpu(device: str) -> bool:
    return device.split(":")[0] == "cpu"


def runtime_setting() -> RuntimeSetting:
    """Return the value of the variable ALADIN_RUNTIME.

    Raises:
        ConfigError: If it has another value than those of `RuntimeSetting`.
    """
    value = os.environ.get(RUNTIME_VARIABLE, "auto")
    if value not in get_args(RuntimeSetting):
        known = ", ".join(get_args(RuntimeSetting))
        raise ConfigError(f"{RUNTIME_VARIABLE}: expected one of {known}, got {value!r}")
    return cast(RuntimeSetting, value)


def _load_by_torch(folder: Path, device: str) -> Checkpoint:
    read_config(folder)  # a folder that is no checkpoint is reported with or without torch
    try:
        from aladin_network.checkpoint import load_checkpoint

        return load_checkpoint(folder, device)
    except ModuleNotFoundError as error:
        if error.name not in _FRAMEWORK:
            raise
        raise ConfigError(
            f"{folder}: this checkpoint has no graphs that can be computed here, and the package "
            f"{error.name} is not installed; run `aladin export onnx CHECKPOINT` where it is, or "
            "`pip install 'aladin-search[cpu]'`"
        ) from error


def _check_bfloat16(device: str) -> None:
    """Refuse to encode in bfloat16 where nothing does so, or another runtime is wanted."""
    wanted = runtime_setting()
    if wanted not in ("auto", "openvino"):
        raise ConfigError(f"bfloat16: openvino computes it, got {RUNTIME_VARIABLE}={wanted}")
    if not _is_cpu(device):
        raise ConfigError(f"bfloat16: the CPU computes it, got the device {device}")
    check_installed("openvino")
    if not multiplies_bfloat16():
        raise ConfigError("bfloat16: this processor does not multiply it")


def load_graphs(
    folder: Path, runtime: GraphRuntime, precision: Precision = "float32"
) -> Checkpoint[GraphNetwork]:
    """Load a checkpoint whose graphs encode.

    Args:
        folder: Folder of the checkpoint.
        runtime: Package that computes the graphs, which is installed.
        precision: Precision of the arithmetic, where the runtime has it.

    Raises:
        CheckpointError: If the checkpoint or its graphs cannot be read, or there are none.
    """
    config = read_config(folder)
    model_id = read_model_id(folder)
    manifest = read_graphs(folder, model_id)
    if manifest is None:
        raise CheckpointError(f"{folder}: expected {GRAPHS}/, which `aladin export onnx` writes")
    graphs = GraphSource(folder, runtime)
    model = GraphNetwork.of(config.model, manifest, read_tokenizer(folder), graphs, precision)
    return as_checkpoint(config, model, model_id)

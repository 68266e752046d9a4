"""Loading of towers and detectors of the transformers library.

The library can run Python code from a model's folder or hub repository (``auto_map`` in its
configuration), and by default asks on standard input whether it may. Every call here passes
``trust_remote_code=False``: such code is never run, and such models are refused.
"""

from __future__ import annotations

import copy
import hashlib
import json
import math
import pickle
from collections.abc import Generator, Iterable
from contextlib import contextmanager
from pathlib import Path
from typing import Any, cast

import torch
import transformers
from torch import nn
from transformers import MODEL_MAPPING, AutoConfig, PreTrainedModel
from transformers.configuration_utils import PretrainedConfig
from transformers.utils import logging

from aladin_network.errors import AladinError, CheckpointError, ConfigError
from aladin_network.sources.hub_messages import missing_folder, one_hub_warning
from aladin_network.sources.limits import check_model_folder, most_parameters, stored_shapes

# Errors of the library if a model is missing, cannot be read, or needs another package.
LOAD_ERRORS = (OSError, ValueError, KeyError, ImportError)

_MOST_CHARS = 300


def load_failure(error: Exception) -> str:
    """Describe why transformers could not load something; its own hints may not apply."""
    text = str(error)
    if isinstance(error, pickle.UnpicklingError):
        return "its weights hold more than tensors, and nothing else is read from a pickle"
    if isinstance(error, MemoryError):
        return "it needs more memory than there is"
    if not isinstance(error, LOAD_ERRORS):
        return f"{type(error).__name__}: {text.strip().partition(chr(10))[0][:_MOST_CHARS]}"
    if "trust_remote_code" in text:
        return "it needs Python code of its own repository, and such code is never run"
    if "Repo id must" in text:  # the hub library's own rule
        return "there is no such folder, and it is no name of the hub's, OWNER/NAME"
    return text


def build_model(architecture: dict[str, Any]) -> PreTrainedModel:
    """Build a network with random weights, including its pooler, from plain data."""
    values = dict(architecture)
    try:
        with quiet():
            config = AutoConfig.for_model(values.pop("model_type"), **values)
            return model_class(config)(config).float()
    except Exception as error:  # values that it does not expect may raise anything
        raise ConfigError(f"encoder architecture: {load_failure(error)}") from error


def read_weights(
    kind: type[Any], source: str, config: PretrainedConfig, unused: Iterable[str] = ()
) -> PreTrainedModel:
    """Read a network of a known class in float32.

    The library would initialise missing weights at random: here they are an error, but for those
    whose names begin with one of `unused`.
    """
    if Path(source).is_dir():
        _compare_sizes(kind, Path(source), config)
    model, report = kind.from_pretrained(
        source,
        config=config,
        dtype="float32",
        output_loading_info=True,
        trust_remote_code=False,
    )
    missing = sorted(name for name in report["missing_keys"] if not name.startswith(tuple(unused)))
    if missing:
        raise ValueError(f"it lacks {len(missing)} tensors: {', '.join(missing[:3])} ...")
    return model


def _compare_sizes(kind: type[Any], folder: Path, config: PretrainedConfig) -> None:
    """Compare a network with the weights in a folder, before memory is taken for either."""
    most = most_parameters(folder)
    if most is None:
        return
    with torch.device("meta"):
        described = copy.deepcopy(config)
        make = kind.from_config if hasattr(kind, "from_config") else kind
        network = cast(PreTrainedModel, make(described))
    own = dict(network.named_parameters())
    needed = sum(parameter.numel() for parameter in own.values())
    if needed > most:
        raise ValueError(
            f"its configuration describes {needed:,} parameters, its weights have {most:,} bytes"
        )
    for path in folder.glob("*.safetensors"):
        for name, shape in stored_shapes(path).items():
            ours = own.get(name, own.get(name.removeprefix(f"{network.base_model_prefix}.")))
            if ours is not None and math.prod(shape) > 2 * ours.numel():
                raise ValueError(
                    f"{name[:_MOST_CHARS]}: expected shape {tuple(ours.shape)}, got {shape}"
                )


@contextmanager
def loading(source: str, what: str) -> Generator[None]:
    """Load something of a model by the library: silently, within bounds, and with one error.

    `what` is done, for the message: "load a tokenizer". A file made to do harm raises anything.
    """
    try:
        check_model_folder(Path(source))
        with quiet(source):
            yield
    except AladinError:
        raise
    except Exception as error:
        raise CheckpointError(f"{source}: cannot {what} ({load_failure(error)})") from error


@contextmanager
def quiet(source: str | None = None) -> Generator[None]:
    """Suppress the library's progress bar, its list of unused weights, and repeated warnings.

    A folder that is not there is not looked for on the hub, which may take a minute to answer.
    """
    missing = None if source is None else missing_folder(source)
    if missing is not None:
        raise FileNotFoundError(f"there is {missing}")
    level, bar = logging.get_verbosity(), logging.is_progress_bar_enabled()
    logging.set_verbosity_error()
    logging.disable_progress_bar()
    try:
        with one_hub_warning():
            yield
    finally:
        logging.set_verbosity(level)
        if bar:
            logging.enable_progress_bar()


def plain_config(config: PretrainedConfig) -> dict[str, Any]:
    """Return the architecture's configuration only, without label tables and provenance."""
    values = config.to_diff_dict()
    dropped = ("id2label", "label2id", "_name_or_path", "architectures", "transformers_version")
    return {key: value for key, value in values.items() if key not in dropped} | {
        "model_type": config.model_type
    }


def without_pooler(model: nn.Module) -> nn.Module:
    """Remove the pooler: the heads pool, and unused weights would enlarge the checkpoint.

    Convolutional networks call theirs unasked, but it has no weights, so it may stay.
    """
    pooler = getattr(model, "pooler", None)
    if isinstance(pooler, nn.Module) and next(pooler.parameters(), None) is not None:
        setattr(model, "pooler", None)  # noqa: B010  a module's declared type has no None
    return model


def model_class(config: PretrainedConfig) -> type[PreTrainedModel]:
    """Find the bare network of a configuration; `AutoModel` lacks a few, e.g. of SigLIP."""
    if type(config) in MODEL_MAPPING:
        return cast(type[PreTrainedModel], MODEL_MAPPING[type(config)])
    name = type(config).__name__.removesuffix("Config") + "Model"
    if not hasattr(transformers, name):
        raise ValueError(f"the transformers library has no network for {type(config).__name__}")
    return getattr(transformers, name)


def load_network(auto_class: Any, source: str, revision: str | None, device: str) -> Any:
    """Load a pretrained network in float32, in evaluation mode."""
    with loading(source, "load a detector"):
        try:
            model = auto_class.from_pretrained(
                source, revision=revision, dtype=torch.float32, trust_remote_code=False
            )
        except ImportError as error:
            reason = " ".join(str(error).split())
            hint = "; some hubs have a version of it without timm, e.g. revision=no_timm"
            raise ImportError(f"{reason}{hint}") from error
    return model.to(device).eval()


def network_digest(model: nn.Module, preprocessing: object) -> str:
    """Return 16 hex digits of the sha256 of a network's weights and of data about its inputs."""
    digest = hashlib.sha256(json.dumps(preprocessing, sort_keys=True, default=str).encode())
    for name, value in sorted(model.state_dict().items()):
        values = value.detach().cpu().contiguous()
        digest.update(f"{name} {values.dtype} {tuple(values.shape)}".encode())
        digest.update(values.flatten().view(torch.uint8).numpy().tobytes())
    return digest.hexdigest()[:16]

"""The network of a detector: loaded from a folder or a hub, and told from others by its weights."""

from __future__ import annotations

import hashlib
import json
from typing import Any

import torch
from torch import nn

from aladin.encoders.transformers_model import quiet
from aladin.errors import CheckpointError
from aladin.remote_code import load_failure


def load_network(auto_class: Any, source: str, revision: str | None, device: str) -> Any:
    """Load a pretrained network in float32, in evaluation mode.

    Args:
        auto_class: of transformers, such as `AutoModelForObjectDetection`.
        source: local folder or hub name.
        revision: of a hub name; None: the newest.
        device: where to run it.

    Raises:
        CheckpointError: there is no such network, it cannot be read, or needs what is missing.
    """
    try:
        with quiet():
            model = auto_class.from_pretrained(
                source, revision=revision, dtype=torch.float32, trust_remote_code=False
            )
    except (OSError, ValueError, KeyError) as error:
        reason = load_failure(error)
        raise CheckpointError(f"{source}: cannot load a detector ({reason})") from error
    except ImportError as error:
        reason = " ".join(str(error).split())
        hint = "; some hubs have a version of it without timm, e.g. revision=no_timm"
        raise CheckpointError(f"{source}: cannot load a detector ({reason}{hint})") from error
    return model.to(device).eval()


def network_digest(model: nn.Module, preprocessing: object) -> str:
    """Return the sha256 of all that a network's answers depend on, 16 hex digits of it.

    Args:
        model: its weights count, whatever file they came from.
        preprocessing: JSON data: of the photos, and the names of the classes.
    """
    digest = hashlib.sha256(json.dumps(preprocessing, sort_keys=True, default=str).encode())
    for name, value in sorted(model.state_dict().items()):
        values = value.detach().cpu().contiguous()
        digest.update(f"{name} {values.dtype} {tuple(values.shape)}".encode())
        digest.update(values.flatten().view(torch.uint8).numpy().tobytes())
    return digest.hexdigest()[:16]

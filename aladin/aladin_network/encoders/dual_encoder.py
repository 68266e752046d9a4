"""Towers of pretrained dual encoders: their pooling and their projections.

A dual encoder compares a vector of a photo and a vector of a text by their cosine. Each is pooled
from a tower's states and then projected linearly:

    family (``model_type``)      photo                        text
    clip, metaclip_2             CLS after the last norm,     state of the end token,
                                 visual_projection            text_projection
    chinese_clip                 the same                     CLS, text_projection
    siglip, siglip2              attention pooling,           state of the last position (mostly
                                 no projection                padding), the tower's head
    vision-text-dual-encoder     the tower's own pooler (CLIP's as above), visual_projection and
                                 text_projection

A matching head that starts as these projections (`aladin_network.heads.tower_start`) reproduces the
dual encoder's similarity without training.
"""

from __future__ import annotations

from typing import Any, Literal, NamedTuple, cast

import torch
import transformers
from jaxtyping import Float
from torch import Tensor, nn
from transformers import AutoConfig, AutoModel, PreTrainedModel
from transformers.configuration_utils import PretrainedConfig

from aladin_network.encoders.base import Projection
from aladin_network.encoders.transformers_model import (
    build_model,
    loading,
    plain_config,
    read_weights,
    without_pooler,
)
from aladin_network.errors import CheckpointError

DUAL_ENCODERS = (
    "clip",
    "metaclip_2",
    "chinese_clip",
    "siglip",
    "siglip2",
    "vision-text-dual-encoder",
)
# Towers saved alone, with their projection.
_WITH_PROJECTION = ("clip", "metaclip_2")

_NORMED_CLS = ("clip_vision_model", "metaclip_2_vision_model", "chinese_clip_vision_model")
_SIGLIP_TEXT = ("siglip_text_model", "siglip2_text_model")


Part = Literal["vision", "text"]


class DualTower(NamedTuple):
    """One tower of a dual encoder.

    Attributes:
        model: Network with its weights.
        architecture: Architecture from which `build_dual_tower` rebuilds it.
        projection: Projection that follows the network.
    """

    model: nn.Module
    architecture: dict[str, Any]
    projection: Projection


def is_dual_encoder(source: str, part: Part) -> bool:
    """Tell whether `load_dual_tower` supports a tower of a source.

    Raises:
        CheckpointError: If there is no model, or its configuration cannot be read.
    """
    config = _read_config(source, part)
    return config.model_type in DUAL_ENCODERS or _projected_class(config, part) is not None


def takes_any_shape(source: str) -> bool:
    """Tell whether a source's vision tower takes photos of any shape as patches (NaFlex).

    Raises:
        CheckpointError: If there is no model, or its configuration cannot be read.
    """
    return _read_config(source, "vision").model_type in ("siglip2", "siglip2_vision_model")


def load_dual_tower(source: str, part: Part) -> DualTower:
    """Load a tower of a dual encoder in float32, with its projection.

    Args:
        source: Local folder or hub name, of a family listed in the docstring of the module.
        part: Tower to load.

    Raises:
        CheckpointError: If it cannot be read, lacks weights, or belongs to no supported family.
    """
    if not is_dual_encoder(source, part):
        known = ", ".join(DUAL_ENCODERS)
        raise CheckpointError(f"{source}: no dual encoder with a pooling of its own ({known})")
    config = _read_config(source, part)
    with loading(source, f"load a {part} encoder"):
        whole = read_weights(_projected_class(config, part) or AutoModel, source, config)
    tower = cast(PreTrainedModel, getattr(whole, f"{part}_model"))
    projection = _projection(whole, tower, part)
    return DualTower(_prepared(tower), plain_config(tower.config), projection)


def build_dual_tower(architecture: dict[str, Any]) -> nn.Module:
    """Build a tower with random weights that pools like its family; see `build_tower`."""
    return _prepared(build_model(architecture))


def pool_photos(
    model: nn.Module, output: Any
) -> tuple[Float[Tensor, "batch tokens dim"], Float[Tensor, "batch dim"]]:
    """Return a vision tower's states after its last norm, and their pooled vector.

    Args:
        model: Network of `load_dual_tower` or `build_dual_tower`.
        output: Output of the network.
    """
    if _type_of(model) in _NORMED_CLS:
        states = cast(nn.Module, model.post_layernorm)(output.last_hidden_state)
        return states, states[:, 0]
    return output.last_hidden_state, output.pooler_output


def pool_texts(model: nn.Module, output: Any) -> Float[Tensor, "batch dim"]:
    """Return a text tower's pooled vector; its last norm has been applied already."""
    if _type_of(model) == "chinese_clip_text_model":
        return output.last_hidden_state[:, 0]
    return output.pooler_output


def end_token(model: nn.Module) -> int | None:
    """Return the id at which a text tower pools, or None if it does not search for one."""
    kind, settings = _type_of(model), cast(PretrainedConfig, model.config)
    # If the configured id is 2, CLIP takes the highest id of a text: its first releases had a wrong
    # number.
    if kind == "metaclip_2_text_model" or (
        kind == "clip_text_model" and settings.eos_token_id != 2
    ):
        return cast(int, settings.eos_token_id)
    return None


def padded_length(model: nn.Module) -> int | None:
    """Return the fixed number of tokens that a text tower needs, unmasked, or None."""
    if _type_of(model) not in _SIGLIP_TEXT:
        return None
    return int(cast(PretrainedConfig, model.config).max_position_embeddings)


def _read_config(source: str, part: Part) -> PretrainedConfig:
    with loading(source, f"load a {part} encoder"):
        config = AutoConfig.from_pretrained(source, trust_remote_code=False)
    return cast(PretrainedConfig, config)


def _type_of(model: nn.Module) -> str:
    return cast(PretrainedConfig, model.config).model_type


def _prepared(model: nn.Module) -> nn.Module:
    """Remove layers that do not affect the pooled vector, or that the matching head applies."""
    kind = _type_of(model)
    if kind in _SIGLIP_TEXT:
        setattr(model, "head", nn.Identity())  # noqa: B010  it starts the matching head
    if kind == "chinese_clip_text_model":
        return without_pooler(model)
    return model


def _projected_class(config: PretrainedConfig, part: Part) -> type[PreTrainedModel] | None:
    """Find the class of a tower that was saved alone with its projection."""
    family = config.model_type.removesuffix(f"_{part}_model")
    name = (getattr(config, "architectures", None) or [""])[0]
    if family not in _WITH_PROJECTION or not name.endswith("ModelWithProjection"):
        return None
    return getattr(transformers, name, None)


def _projection(whole: PreTrainedModel, tower: PreTrainedModel, part: Part) -> Projection:
    name = "visual_projection" if part == "vision" else "text_projection"
    layer: Any = getattr(whole, name, None)
    if layer is None and _type_of(tower) in _SIGLIP_TEXT:
        layer = cast(Any, tower.head)
    if layer is None:
        return Projection(torch.eye(int(tower.config.hidden_size)), None)
    bias = cast(Tensor | None, layer.bias)
    return Projection(
        layer.weight.detach().clone(), None if bias is None else bias.detach().clone()
    )

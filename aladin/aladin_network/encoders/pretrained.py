"""Pretrained towers of the transformers library: one network, or one of the two of a dual encoder.

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
    model_class,
    plain_config,
    read_weights,
    without_pooler,
)
from aladin_network.errors import CheckpointError

Part = Literal["vision", "text"]

# A pair of any two towers; the weights in its files have other names than in the towers.
_PAIR = "vision-text-dual-encoder"
DUAL_ENCODERS = ("clip", "metaclip_2", "chinese_clip", "siglip", "siglip2", _PAIR)
# Towers saved alone, with their projection.
_WITH_PROJECTION = ("clip", "metaclip_2")


class _Pooling(NamedTuple):
    """How a tower's own similarity pools its states.

    Attributes:
        norm: Layer that the states pass first, or None if they have passed their last norm.
        takes: The network's own pooled vector, or its first state.
        head: Layer of the network that is its projection, or None.
        is_padded: Whether texts are padded to the network's own length, unmasked.
        searches_end: Whether it looks for the end token by its configured id. The first releases
            of CLIP had a wrong number, 2, for which the highest id of a text is taken.
        wrong_end: Configured id of the end token for which it is not searched.
    """

    norm: str | None = None
    takes: Literal["own", "first"] = "own"
    head: str | None = None
    is_padded: bool = False
    searches_end: bool = False
    wrong_end: int | None = None


_POOLINGS = {
    "clip_vision_model": _Pooling(norm="post_layernorm", takes="first"),
    "metaclip_2_vision_model": _Pooling(norm="post_layernorm", takes="first"),
    "chinese_clip_vision_model": _Pooling(norm="post_layernorm", takes="first"),
    "chinese_clip_text_model": _Pooling(takes="first"),
    "clip_text_model": _Pooling(searches_end=True, wrong_end=2),
    "metaclip_2_text_model": _Pooling(searches_end=True),
    "siglip_text_model": _Pooling(head="head", is_padded=True),
    "siglip2_text_model": _Pooling(head="head", is_padded=True),
}


class Tower(NamedTuple):
    """A pretrained tower.

    Attributes:
        model: Network with its weights, float32.
        architecture: Architecture from which `build_tower` rebuilds it.
        projection: Projection that follows the network, or None if it was not loaded to be pooled.
    """

    model: nn.Module
    architecture: dict[str, Any]
    projection: Projection | None = None


def is_dual_encoder(source: str, part: Part) -> bool:
    """Tell whether a tower of a local folder or hub name has a pooling and a projection."""
    config = _read_config(source, part)
    return config.model_type in DUAL_ENCODERS or _projected_class(config, part) is not None


def takes_any_shape(source: str) -> bool:
    """Tell whether a source's vision tower takes photos of any shape as patches (NaFlex)."""
    return _read_config(source, "vision").model_type in ("siglip2", "siglip2_vision_model")


def load_tower(source: str, part: Part, *, pooled: bool = False) -> Tower:
    """Load a tower of a local folder or hub name; if `pooled`, of a dual encoder, as it pools."""
    whole = _read_config(source, part)
    if pooled:
        return _load_pooled(source, part, whole)
    with loading(source, f"load a {part} encoder"):
        config: PretrainedConfig = getattr(whole, f"{part}_config", whole)
        if whole.model_type == _PAIR:
            pair = read_weights(AutoModel, source, whole)
            model = cast(nn.Module, getattr(pair, f"{part}_model"))
        else:
            model = read_weights(model_class(config), source, config, unused=("pooler.",))
    return Tower(without_pooler(model), plain_config(config))


def _load_pooled(source: str, part: Part, config: PretrainedConfig) -> Tower:
    projected = _projected_class(config, part)
    if config.model_type not in DUAL_ENCODERS and projected is None:
        known = ", ".join(DUAL_ENCODERS)
        raise CheckpointError(f"{source}: no dual encoder with a pooling of its own ({known})")
    with loading(source, f"load a {part} encoder"):
        whole = read_weights(projected or AutoModel, source, config)
    tower = cast(PreTrainedModel, getattr(whole, f"{part}_model"))
    projection = _projection(whole, tower, part)
    return Tower(_prepared(tower), plain_config(tower.config), projection)


def build_tower(architecture: dict[str, Any], *, pooled: bool = False) -> nn.Module:
    """Build a tower with random weights, for `pool` if `pooled`."""
    model = build_model(architecture)
    return _prepared(model) if pooled else without_pooler(model)


def pool(
    model: nn.Module, output: Any
) -> tuple[Float[Tensor, "batch tokens dim"], Float[Tensor, "batch dim"]]:
    """Return the states of a pooled tower's output after its last norm, and their pooled vector."""
    pooling = _pooling_of(model)
    states = output.last_hidden_state
    if pooling.norm is not None:
        states = model.get_submodule(pooling.norm)(states)
    return states, states[:, 0] if pooling.takes == "first" else output.pooler_output


def end_token(model: nn.Module) -> int | None:
    """Return the id at which a text tower pools, or None if it does not search for one."""
    pooling = _pooling_of(model)
    configured = getattr(model.config, "eos_token_id", None)
    return configured if pooling.searches_end and configured != pooling.wrong_end else None


def padded_length(model: nn.Module) -> int | None:
    """Return the fixed number of tokens that a text tower needs, unmasked, or None."""
    if not _pooling_of(model).is_padded:
        return None
    return int(cast(PretrainedConfig, model.config).max_position_embeddings)


def _read_config(source: str, part: Part) -> PretrainedConfig:
    with loading(source, f"load a {part} encoder"):
        config = AutoConfig.from_pretrained(source, trust_remote_code=False)
    return cast(PretrainedConfig, config)


def _pooling_of(model: nn.Module) -> _Pooling:
    return _POOLINGS.get(cast(PretrainedConfig, model.config).model_type, _Pooling())


def _prepared(model: nn.Module) -> nn.Module:
    """Remove layers that do not affect the pooled vector, or that the matching head applies."""
    pooling = _pooling_of(model)
    if pooling.head is not None:
        setattr(model, pooling.head, nn.Identity())  # it starts the matching head
    is_unused = pooling.takes == "first" and pooling.norm is None
    return without_pooler(model) if is_unused else model


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
    head = _pooling_of(tower).head
    if layer is None and head is not None:
        layer = tower.get_submodule(head)
    if layer is None:
        return Projection(torch.eye(int(tower.config.hidden_size)), None)
    bias = cast(Tensor | None, layer.bias)
    return Projection(
        layer.weight.detach().clone(), None if bias is None else bias.detach().clone()
    )

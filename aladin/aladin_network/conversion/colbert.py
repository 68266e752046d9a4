"""Conversion of late-interaction networks for texts alone: ColBERT, PyLate, sentence-transformers.

The tokens of the checkpoint are the network's own, so that the alignment score of a query with a
document is its MaxSim. Documents take the place of photos.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any, cast

from tokenizers import AddedToken, Tokenizer
from tokenizers.normalizers import Lowercase
from tokenizers.normalizers import Sequence as Normalizers
from torch import Tensor, nn
from transformers import AutoTokenizer

from aladin_network.checkpoint import read_tensors
from aladin_network.config import ImageEncoderConfig, TextEncoderConfig, dump_config
from aladin_network.conversion.colbert_folder import TextFolder, read_text_folder
from aladin_network.conversion.tensors import named_tensors, read_torch_file
from aladin_network.encoders.colbert import ColBERTDocumentEncoder, ColBERTTextEncoder
from aladin_network.encoders.colbert_roles import (
    ACTIVATIONS,
    ColBERTArchitecture,
    DocumentRole,
    Expansion,
    ProjectionLayer,
    QueryRole,
)
from aladin_network.encoders.transformers_model import (
    LOAD_ERRORS,
    load_failure,
    load_tower,
    quiet,
)
from aladin_network.errors import CheckpointError

# Far more than a query. Networks for photos read thousands of tokens, mostly those of photos; of a
# network for texts, this is the limit if it sets none itself.
MAX_TOKENS = 512
_UNLIMITED = 10**6


def read_text_encoders(
    folder: Path, max_tokens: int | None = None
) -> tuple[ColBERTDocumentEncoder, ColBERTTextEncoder]:
    """Read the encoders of documents and of queries.

    Args:
        folder: Folder of a network for texts alone, see `colbert_folder`.
        max_tokens: Longest document in tokens, or None for the folder's own limit.

    Raises:
        CheckpointError: If the folder cannot be read, or changes tokens in a way that a checkpoint
            cannot.
        ConfigError: If `max_tokens` leaves no room for a text.
    """
    found = read_text_folder(folder)
    network, plain = load_tower(str(found.network), "text")
    if plain.get("is_encoder_decoder"):
        raise CheckpointError(f"{folder}: expected an encoder, got an encoder with a decoder")
    wrapped = _read_tokenizer(found)
    longest = _longest(found, wrapped, cast(Any, network).config)
    layers, weights = _projections(folder, found)
    expansion = _expansion(folder, found, wrapped)
    query_max = _longest_query(found, longest)
    skipped = _skipped(found, wrapped)
    query = QueryRole(
        prefix=found.prefixes["query"],
        expansion=expansion,
        skipped=skipped if "query" in found.skipped_roles else (),
    )
    architecture = ColBERTArchitecture(network=plain, projections=layers, query=query)
    text_encoder = ColBERTTextEncoder(
        TextEncoderConfig(
            name="colbert",
            architecture=dump_config(architecture),
            frozen=True,
            max_tokens=query_max,
            pad_id=int(wrapped.pad_token_id or 0),
        ),
        Tokenizer.from_str(wrapped.backend_tokenizer.to_str()),
        network,
    )
    _load_projections(folder, text_encoder.projections, weights)
    role = DocumentRole(
        prefix=found.prefixes["document"],
        max_tokens=max_tokens or min(found.document_length or longest, longest),
        skipped=skipped if "document" in found.skipped_roles else (),
    )
    config = ImageEncoderConfig(name="colbert", architecture=dump_config(role), frozen=True)
    return ColBERTDocumentEncoder(config, text_encoder), text_encoder


def _read_tokenizer(found: TextFolder) -> Any:
    """Read the tokenizer, with its prefixes as tokens of their own where it has such tokens."""
    try:
        with quiet():
            wrapped: Any = AutoTokenizer.from_pretrained(
                str(found.network), trust_remote_code=False
            )
    except LOAD_ERRORS as error:
        raise CheckpointError(
            f"{found.network}: its tokenizer cannot be loaded ({load_failure(error)})"
        ) from error
    if not wrapped.is_fast:
        raise CheckpointError(f"{found.network}: expected a fast tokenizer (tokenizer.json)")
    if found.lowercase:
        backend = wrapped.backend_tokenizer
        before = [Lowercase()] if backend.normalizer is None else [Lowercase(), backend.normalizer]
        backend.normalizer = Normalizers(before)
    if found.marks_prefixes:
        _mark_prefixes(wrapped, found.prefixes.values())
    return wrapped


def _mark_prefixes(wrapped: Any, prefixes: Iterable[str]) -> None:
    """Let prefixes that are tokens of the vocabulary be read as one token.

    As text, "[unused0]" or "[Q] " would be split, although the network was trained with one token.
    """
    vocabulary = wrapped.get_vocab()
    marks: list[AddedToken] = []
    for prefix in prefixes:
        known = [name for name in (prefix, *prefix.split()[:1]) if name in vocabulary]
        if known and wrapped.tokenize(known[0]) != known[:1]:
            marks.append(AddedToken(known[0], normalized=False, special=True))
    if marks:
        wrapped.add_special_tokens({"additional_special_tokens": marks})


def _longest(found: TextFolder, wrapped: Any, config: Any) -> int:
    """Return the longest text in tokens."""
    if found.max_seq_length is not None:
        return found.max_seq_length
    own = int(wrapped.model_max_length)
    positions = getattr(config, "max_position_embeddings", None)
    if isinstance(positions, int) and positions > 0:
        own = min(own, positions)
    return own if own < _UNLIMITED else MAX_TOKENS


def _longest_query(found: TextFolder, longest: int) -> int:
    limit = min(found.query_length or longest, longest)
    if found.expansion is None:
        return limit
    length = int(found.expansion["length"])
    return length if found.expansion["strategy"] == "fixed" else max(limit, length)


def _expansion(folder: Path, found: TextFolder, wrapped: Any) -> Expansion | None:
    if found.expansion is None:
        return None
    strategy, length = found.expansion.get("strategy"), found.expansion.get("length")
    if strategy not in ("fixed", "min") or not isinstance(length, int) or length < 1:
        raise CheckpointError(
            f"{folder}: query_expansion: expected the strategy fixed or min, and a length, got "
            f"{strategy!r} and {length!r}"
        )
    if wrapped.padding_side != "right":
        raise CheckpointError(f"{folder}: query_expansion: expected padding on the right")
    name = found.expansion.get("token")
    token = wrapped.mask_token_id if name is None else wrapped.convert_tokens_to_ids(name)
    if token is None and name is None:
        token = wrapped.eos_token_id
    if token is None or (name != wrapped.unk_token and token == wrapped.unk_token_id):
        raise CheckpointError(
            f"{folder}: query_expansion: the vocabulary has no token {name or '[MASK]'!r}"
        )
    attend = bool(found.expansion.get("attend", False))
    return Expansion(length=length, token=int(token), attend=attend)


def _skipped(found: TextFolder, wrapped: Any) -> tuple[int, ...]:
    """Return the ids of the skipped words that are tokens of their own."""
    ids = {word: wrapped.convert_tokens_to_ids(word) for word in found.skipped}
    unknown = wrapped.unk_token_id
    return tuple(
        int(each)
        for word, each in ids.items()
        if each is not None and (each != unknown or word == wrapped.unk_token)
    )


Weights = list[dict[str, Tensor]]


def _projections(folder: Path, found: TextFolder) -> tuple[tuple[ProjectionLayer, ...], Weights]:
    """Read the linear maps and their weights."""
    if found.has_inline_map:
        weight = _tensors(found.network).get("linear.weight")
        if weight is None or weight.ndim != 2:
            raise CheckpointError(f"{folder}: expected a matrix linear.weight beside the network")
        layer = ProjectionLayer(in_dim=weight.shape[1], out_dim=weight.shape[0])
        return (layer,), [{"linear.weight": weight}]
    layers: list[ProjectionLayer] = []
    weights: Weights = []
    for own, config in found.dense:
        activation = str(config.get("activation_function", "Tanh")).rpartition(".")[2]
        if activation not in ACTIVATIONS:
            raise CheckpointError(
                f"{own}: unknown activation_function {activation!r}, known are "
                f"{sorted(ACTIVATIONS)}"
            )
        try:
            layer = ProjectionLayer(
                in_dim=int(config["in_features"]),
                out_dim=int(config["out_features"]),
                bias=bool(config.get("bias", True)),
                activation=activation,
                residual=bool(config.get("use_residual", False)),
            )
        except (KeyError, TypeError, ValueError) as error:
            raise CheckpointError(f"{own}: config.json: {error!r}") from error
        layers.append(layer)
        weights.append(_tensors(own))
    return tuple(layers), weights


def _load_projections(folder: Path, layers: nn.ModuleList, weights: Weights) -> None:
    for layer, tensors in zip(layers, weights, strict=True):
        try:
            layer.load_state_dict({name: value.float() for name, value in tensors.items()})
        except RuntimeError as error:
            reason = " ".join(str(error).split())
            raise CheckpointError(f"{folder}: a linear map does not fit ({reason})") from error


def _tensors(folder: Path) -> dict[str, Tensor]:
    """Read the weights of a module."""
    file = folder / "model.safetensors"
    if file.exists():
        return read_tensors(file)
    old = folder / "pytorch_model.bin"
    return named_tensors(read_torch_file(old), str(old))

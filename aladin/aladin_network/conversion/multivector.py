"""Conversion of late-interaction networks: ColPali, ColQwen2, ColModernVBERT, ColBERT and PyLate.

The tokens of the checkpoint are the network's own, so that the alignment score is its MaxSim. The
embedding of the first stage is the normalised mean of an item's tokens. Of networks for texts alone
(ColBERT, PyLate: `aladin_network.conversion.colbert`) documents take the place of photos.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, NamedTuple, cast

import torch
import transformers
from tokenizers import Tokenizer
from transformers import AutoConfig

from aladin_network.checkpoint import save_checkpoint
from aladin_network.checkpoint_files import Provenance
from aladin_network.config import (
    AlignmentHeadConfig,
    ImageEncoderConfig,
    MatchingHeadConfig,
    ModelConfig,
    TowerConfig,
)
from aladin_network.conversion.colbert import MAX_TOKENS, read_text_encoders
from aladin_network.conversion.colbert_folder import read_any_json, read_json
from aladin_network.conversion.tensors import refuse_existing
from aladin_network.encoders.multivector import (
    MultiVectorImageEncoder,
    MultiVectorTextEncoder,
    text_config,
)
from aladin_network.encoders.multivector_families import (
    FAMILIES,
    TextPrompt,
    describe_processor,
    text_prompt,
)
from aladin_network.encoders.transformers_model import (
    LOAD_ERRORS,
    load_failure,
    quiet,
    read_weights,
)
from aladin_network.errors import CheckpointError
from aladin_network.heads.matching import start_as_mean
from aladin_network.model import AladinModel

Pooling = Literal["mean", "learned"]

# Features of a token in a learned pooling, as a multiple of its size.
_FEATURES = 4
# Modules of sentence-transformers that leave tokens as they are, or are converted.
_MODULES = ("Transformer", "MultiVectorMask", "Normalize")
_TEXT_ONLY = ("ColBERT", "MultiVectorEncoder")


@dataclass(frozen=True, kw_only=True)
class MultiVectorReport:
    """Result of converting a late-interaction network.

    Attributes:
        out: Checkpoint that was written.
        source: Source of the network.
        family: Its ``model_type``.
        dim: Size of tokens and embeddings.
        max_tokens: Longest text in tokens, those of the prompt included; of a network for texts
            alone the longest query.
        max_document_tokens: Longest document of a network for texts alone; None for others.
    """

    out: Path
    source: str
    family: str
    dim: int
    max_tokens: int
    max_document_tokens: int | None = None


def convert_multivector(
    source: str, out: Path, max_tokens: int | None = None, pooling: Pooling = "mean"
) -> MultiVectorReport:
    """Convert a late-interaction network to a checkpoint.

    Args:
        source: Local folder; or hub name of a network for texts and photos.
        out: Folder of the new checkpoint; it must not exist yet, or be empty.
        max_tokens: Longest text in tokens, those of the prompt included, or None for 512; of a
            network for texts alone the longest document, or None for the source's own limit.
        pooling: "mean" for embeddings that are the mean of an item's tokens; "learned" for a
            pooling that starts as the mean, to be trained by the recipe `pooling`.

    Raises:
        CheckpointError: If the source is of another architecture, or cannot be loaded.
        ConfigError: If `out` is in use, or `max_tokens` leaves no room for a text.
    """
    refuse_existing(out)
    _refuse_adapter(source)
    try:
        with quiet(source):
            config: Any = AutoConfig.from_pretrained(
                _network_folder(source), trust_remote_code=False
            )
            kind = _check_kind(source, config)
            image_encoder, text_encoder = (
                _photo_encoders(source, config, max_tokens or MAX_TOKENS)
                if kind in FAMILIES
                else read_text_encoders(Path(source), max_tokens)
            )
    except LOAD_ERRORS as error:
        raise CheckpointError(f"{source}: cannot be loaded ({load_failure(error)})") from error
    bare, dim = TowerConfig(trunk=None, aggregate="mean"), text_encoder.dim
    matching = MatchingHeadConfig(layers=0)
    if pooling == "learned":
        matching = MatchingHeadConfig(
            layers=0, pooling=("learned",), dim=dim, feedforward=_FEATURES * dim
        )
    model_config = ModelConfig(
        image_encoder=image_encoder.config,
        text_encoder=text_encoder.config,
        image_tower=bare,
        text_tower=bare,
        alignment=AlignmentHeadConfig(dim=None),
        matching=matching,
    )
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        model = AladinModel(model_config, image_encoder, text_encoder).eval()
    if pooling == "learned":
        start_as_mean(model.matching)
    origin = {"converted_from": {"multivector": source}}
    provenance = Provenance(recipe=json.dumps(origin), stage="convert")
    save_checkpoint(out, model, provenance=provenance, alignment_trained=True)
    longest = text_encoder.config.max_tokens
    return MultiVectorReport(
        out=out,
        source=source,
        family=kind,
        dim=dim,
        max_tokens=longest,
        max_document_tokens=getattr(image_encoder, "max_tokens", None),
    )


def _photo_encoders(
    source: str, config: Any, max_tokens: int
) -> tuple[MultiVectorImageEncoder, MultiVectorTextEncoder]:
    """Read the encoders of a network for texts and photos."""
    kind = str(config.model_type)
    family = FAMILIES[kind]
    network = read_weights(getattr(transformers, family.network), source, config)
    processor = getattr(transformers, family.processor).from_pretrained(source)
    own = read_library_options(source, processor.tokenizer)
    prompt = text_prompt(kind, processor)
    prompt = TextPrompt(prompt.prefix + own.query_prompt, prompt.suffix)
    tokenizer = Tokenizer.from_str(processor.tokenizer.backend_tokenizer.to_str())
    pad_id = int(processor.tokenizer.pad_token_id or 0)
    text_encoder = MultiVectorTextEncoder(
        text_config(network, prompt, pad_id, max_tokens), tokenizer, network
    )
    described = json.loads(json.dumps(describe_processor(kind, processor, own.kept, own.dropped)))
    image_config = ImageEncoderConfig(name="multivector", architecture=described, frozen=True)
    return MultiVectorImageEncoder(image_config, text_encoder), text_encoder


class LibraryOptions(NamedTuple):
    """What a folder of sentence-transformers changes about the network in it.

    Attributes:
        query_prompt: Characters before every query.
        kept: Ids of the tokens of photos that are compared, or None for all.
        dropped: Ids of tokens of photos that are not compared in any case.
    """

    query_prompt: str = ""
    kept: list[int] | None = None
    dropped: list[int] = []  # noqa: RUF012 - never changed


def read_library_options(source: str, tokenizer: Any) -> LibraryOptions:
    """Read the modules of a folder that a `MultiVectorEncoder` saved.

    Args:
        source: Folder; one without modules, and a hub name, change nothing.
        tokenizer: Tokenizer of the network.

    Raises:
        CheckpointError: If a module changes tokens in a way that a checkpoint cannot.
    """
    modules = read_any_json(Path(source) / "modules.json")
    if not isinstance(modules, list):
        return LibraryOptions()
    options = LibraryOptions()
    for module in cast(list[dict[str, Any]], modules):
        name = str(module.get("type")).rpartition(".")[2]
        if name not in _MODULES:
            raise CheckpointError(
                f"{source}: expected no modules but {', '.join(_MODULES)}, got {name}"
            )
        if name == "MultiVectorMask":
            path = Path(source) / str(module.get("path")) / "config.json"
            options = _mask_options(source, read_json(path), tokenizer)
    library = read_json(Path(source) / "config_sentence_transformers.json")
    prompts = cast(dict[str, Any], library.get("prompts") or {})
    return options._replace(query_prompt=str(prompts.get("query") or ""))


def _mask_options(source: str, mask: dict[str, Any], tokenizer: Any) -> LibraryOptions:
    words: list[str] = mask.get("skiplist_words") or []
    tasks: list[str] = mask.get("skiplist_tasks") or ["document"]
    if words and "query" in tasks:
        raise CheckpointError(f"{source}: it drops words of queries, which a checkpoint cannot")
    ids: list[int] = [tokenizer.convert_tokens_to_ids(word) for word in words]
    dropped = [each for each in ids if each != tokenizer.unk_token_id]
    return LibraryOptions(
        kept=mask.get("keep_only_token_ids"), dropped=dropped if "document" in tasks else []
    )


def _refusal(source: str, found: str) -> CheckpointError:
    known = ", ".join(sorted(FAMILIES))
    return CheckpointError(
        f"{source}: expected a network of type {known}, or a folder of a ColBERT or PyLate network "
        f"for texts, got {found}"
    )


def _network_folder(source: str) -> str:
    """Return where the configuration of the network is: in the folder of its module, if any."""
    modules = read_any_json(Path(source) / "modules.json")
    for module in cast(list[dict[str, Any]], modules) if isinstance(modules, list) else ():
        if str(module.get("type")).endswith(".Transformer"):
            return str(Path(source) / str(module.get("path") or ""))
    return source


def _check_kind(source: str, config: Any) -> str:
    """Return the ``model_type`` of a network that can be converted.

    Raises:
        CheckpointError: If the network is of another kind.
    """
    kind = str(config.model_type)
    if kind in FAMILIES:
        return kind
    library = read_json(Path(source) / "config_sentence_transformers.json")
    if "HF_ColBERT" in (config.architectures or ()) or library.get("model_type") in _TEXT_ONLY:
        if Path(source).is_dir():
            return kind
        raise CheckpointError(
            f"{source}: expected a local folder of this network for texts, got a hub name; "
            f"download it first: hf download {source} --local-dir FOLDER"
        )
    raise _refusal(source, f"one of type {kind!r}")


def _refuse_adapter(source: str) -> None:
    """Refuse a folder of an adapter without its base model.

    Raises:
        CheckpointError: If it is one.
    """
    folder = Path(source)
    if (folder / "adapter_config.json").exists() and not (folder / "config.json").exists():
        raise _refusal(source, "an adapter (PEFT); merge it into its base model first")

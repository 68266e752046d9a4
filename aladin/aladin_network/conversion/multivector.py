"""Conversion of late-interaction networks for texts and photos: ColPali, ColQwen2, ColModernVBERT.

The tokens of the checkpoint are the network's own, so that the alignment score is its MaxSim. The
embedding of the first stage is the normalised mean of an item's tokens. Networks for texts alone
(ColBERT, PyLate) are refused: the alignment here is one of texts with photos.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple, cast

import torch
import transformers
from tokenizers import Tokenizer
from transformers import AutoConfig

from aladin_network.checkpoint import Provenance, save_checkpoint
from aladin_network.config import (
    AlignmentHeadConfig,
    ImageEncoderConfig,
    MatchingHeadConfig,
    ModelConfig,
    TowerConfig,
)
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
from aladin_network.model import AladinModel

# Far more than a query; the networks read thousands of tokens, mostly those of photos.
MAX_TOKENS = 512
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
        max_tokens: Longest text in tokens, those of the prompt included.
    """

    out: Path
    source: str
    family: str
    dim: int
    max_tokens: int


def convert_multivector(source: str, out: Path, max_tokens: int = MAX_TOKENS) -> MultiVectorReport:
    """Convert a late-interaction network of transformers to a checkpoint.

    Args:
        source: Local folder or hub name.
        out: Folder of the new checkpoint; it must not exist yet, or be empty.
        max_tokens: Longest text in tokens, those of the prompt included.

    Raises:
        CheckpointError: If the source is of another architecture, or cannot be loaded.
        ConfigError: If `out` is in use, or `max_tokens` leaves no room for a text.
    """
    refuse_existing(out)
    _refuse_adapter(source)
    try:
        with quiet():
            config: Any = AutoConfig.from_pretrained(source, trust_remote_code=False)
            kind = _check_kind(source, config)
            family = FAMILIES[kind]
            network = read_weights(getattr(transformers, family.network), source, config)
            processor = getattr(transformers, family.processor).from_pretrained(source)
    except LOAD_ERRORS as error:
        raise CheckpointError(f"{source}: cannot be loaded ({load_failure(error)})") from error
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
    image_encoder = MultiVectorImageEncoder(image_config, text_encoder)
    bare = TowerConfig(trunk=None, aggregate="mean")
    model_config = ModelConfig(
        image_encoder=image_encoder.config,
        text_encoder=text_encoder.config,
        image_tower=bare,
        text_tower=bare,
        alignment=AlignmentHeadConfig(dim=None),
        matching=MatchingHeadConfig(layers=0),
    )
    with torch.random.fork_rng(devices=[]):
        model = AladinModel(model_config, image_encoder, text_encoder).eval()
    origin = {"converted_from": {"multivector": source}}
    provenance = Provenance(recipe=json.dumps(origin), stage="convert")
    save_checkpoint(out, model, provenance=provenance, alignment_trained=True)
    return MultiVectorReport(
        out=out, source=source, family=kind, dim=text_encoder.dim, max_tokens=max_tokens
    )


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
    modules = _read_json(Path(source) / "modules.json")
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
            options = _mask_options(source, cast(dict[str, Any], _read_json(path) or {}), tokenizer)
    prompts = _library_config(source).get("prompts") or {}
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
    return CheckpointError(f"{source}: expected a network of type {known}, got {found}")


def _check_kind(source: str, config: Any) -> str:
    """Return the family of a configuration.

    Raises:
        CheckpointError: If the network is of another kind.
    """
    kind = str(config.model_type)
    if kind in FAMILIES:
        return kind
    found = f"one of type {kind!r}"
    if (
        "HF_ColBERT" in (config.architectures or ())
        or _library_config(source).get("model_type") in _TEXT_ONLY
    ):
        found += (
            ", which PyLate or ColBERT trained on texts alone: no photos can be aligned with it"
        )
    raise _refusal(source, found)


def _library_config(source: str) -> dict[str, Any]:
    data = _read_json(Path(source) / "config_sentence_transformers.json")
    return cast(dict[str, Any], data) if isinstance(data, dict) else {}


def _read_json(path: Path) -> object:
    """Return the content of a file, or None if there is none."""
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return None
    except (OSError, ValueError) as error:
        raise CheckpointError(f"{path}: cannot be read ({error})") from error


def _refuse_adapter(source: str) -> None:
    """Refuse a folder of an adapter without its base model.

    Raises:
        CheckpointError: If it is one.
    """
    folder = Path(source)
    if (folder / "adapter_config.json").exists() and not (folder / "config.json").exists():
        raise _refusal(source, "an adapter (PEFT); merge it into its base model first")

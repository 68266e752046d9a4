"""Conversion of OSCAR and VinVL (microsoft/Oscar, ``oscar/modeling/modeling_bert.py``).

Their folders contain:

pytorch_model.bin   the tensors
config.json         BERT's configuration, and the keys of the region embedding
vocab.txt           word pieces, one a line
and sometimes tokenizer_config.json, added_tokens.json and training_args.bin

The network is BERT with an additional embedding of regions. Its task-specific layers, on top of
the pooler (a classifier of pairs, a masked language model), take no part in ALADIN.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import torch
from pydantic import ConfigDict
from tokenizers import Tokenizer

from aladin_network.config import (
    AlignmentHeadConfig,
    ImageEncoderConfig,
    MatchingHeadConfig,
    ModelConfig,
    TextEncoderConfig,
    TowerConfig,
    dump_config,
    parse_config,
)
from aladin_network.conversion.tensors import (
    ConversionReport,
    Left,
    Rename,
    map_tensors,
    named_tensors,
    read_torch_file,
    refuse_existing,
    write_converted,
)
from aladin_network.encoders.regions import RegionsArchitecture
from aladin_network.encoders.vocabulary import bert_tokenizer
from aladin_network.errors import CheckpointError, ConfigError
from aladin_network.model import AladinModel

WEIGHTS, CONFIG, VOCABULARY = "pytorch_model.bin", "config.json", "vocab.txt"
_SPECIAL = ("[PAD]", "[UNK]", "[CLS]", "[SEP]")

_PAIRS = "of what OSCAR was trained for, on top of a text and a photo read together"


_NOT_OF_BERT = (
    *("img_feature_dim", "img_feature_type", "use_img_layernorm", "img_layer_norm_eps"),
    "pruned_heads",
)


@dataclass(frozen=True, kw_only=True)
class OscarConfig:
    """Keys of a ``config.json`` that affect the network's computation.

    The keys with a default are those that early versions of the library did not write, when the
    default was all they could do.

    Attributes:
        img_feature_dim: Length of a region's vector, 2054 with VinVL's geometry.
        img_feature_type: Input form of regions; "dis_code" and the like are codes, not vectors.
    """

    # Keys about the training task are also in such a file; they are ignored.
    __pydantic_config__: ClassVar[ConfigDict] = ConfigDict(extra="ignore")

    vocab_size: int
    hidden_size: int
    num_hidden_layers: int
    num_attention_heads: int
    intermediate_size: int
    max_position_embeddings: int
    type_vocab_size: int
    img_feature_dim: int
    img_feature_type: str = "faster_r-cnn"
    use_img_layernorm: bool | int | None = None
    img_layer_norm_eps: float = 1e-12
    hidden_act: str = "gelu"
    hidden_dropout_prob: float = 0.1
    attention_probs_dropout_prob: float = 0.1
    initializer_range: float = 0.02
    layer_norm_eps: float = 1e-12
    pruned_heads: dict[str, list[int]] | None = None

    def bert(self) -> dict[str, Any]:
        """Return the transformers library's configuration of the same BERT."""
        own = dump_config(self)
        return {"model_type": "bert"} | {key: own[key] for key in own if key not in _NOT_OF_BERT}


def read_oscar_config(folder: Path) -> OscarConfig:
    path = folder / CONFIG
    try:
        config = parse_config(OscarConfig, _read_json(path), str(path))
    except ConfigError as error:
        raise CheckpointError(str(error)) from None
    if config.img_feature_dim < 1:
        raise CheckpointError(f"{path}: img_feature_dim {config.img_feature_dim}: reads no regions")
    if config.img_feature_type.startswith("dis_code"):
        raise CheckpointError(
            f"{path}: img_feature_type {config.img_feature_type!r}: this network reads codes; "
            "only those that read region vectors can be converted"
        )
    if any((config.pruned_heads or {}).values()):
        raise CheckpointError(f"{path}: pruned_heads: networks with heads cut out are not known")
    return config


def read_oscar_tokenizer(folder: Path, vocab_size: int) -> Tokenizer:
    """Build BERT's tokenizer from ``vocab.txt``.

    It lower-cases unless ``tokenizer_config.json`` says otherwise, as the library in which OSCAR is
    written does.
    """
    path = folder / VOCABULARY
    try:
        # Only a line feed ends an entry: a few word pieces are other whitespace characters.
        entries = path.read_bytes().decode("utf-8").removesuffix("\n").split("\n")
    except (OSError, UnicodeDecodeError) as error:
        raise CheckpointError(f"{path}: cannot be read ({error})") from None
    vocabulary = {entry.removesuffix("\r"): number for number, entry in enumerate(entries)}
    missing = [token for token in _SPECIAL if token not in vocabulary]
    if missing:
        raise CheckpointError(f"{path}: no vocabulary of BERT's, it has no {', '.join(missing)}")
    if len(entries) > vocab_size:
        raise CheckpointError(
            f"{path}: {len(entries)} entries, {CONFIG} says vocab_size {vocab_size}"
        )
    added = folder / "added_tokens.json"
    if added.exists() and _read_json(added):
        raise CheckpointError(f"{added}: tokens beside {VOCABULARY} are not known; expected none")

    return bert_tokenizer(vocabulary, lowercase=_lower_cases(folder))


def _lower_cases(folder: Path) -> bool:
    path = folder / "tokenizer_config.json"
    if not path.exists():
        return True
    value = _read_json(path).get("do_lower_case", True)
    if not isinstance(value, bool):
        raise CheckpointError(f"{path}: do_lower_case: expected true or false, got {value!r}")
    return value


def _read_json(path: Path) -> dict[str, Any]:
    try:
        data: Any = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise CheckpointError(f"{path}: cannot be read ({error})") from None
    if not isinstance(data, dict):
        raise CheckpointError(f"{path}: expected an object, found {type(data).__name__}")
    return data


# ALADIN's README uses these lengths for training and testing.
MAX_TOKENS, MAX_REGIONS = 50, 34


@dataclass(frozen=True, kw_only=True)
class RegionsOptions:
    """Options of the network that a checkpoint's own files do not contain.

    Attributes:
        max_tokens: Maximum length of a text, and of the label part of a photo, special tokens
            included.
        official: Whether to compute like ALADIN's published code where it differs from the paper
            (A-1, A-2, A-4 and A-5 of training/PAPERS.md); otherwise the paper is followed.
    """

    max_tokens: int = MAX_TOKENS
    max_regions: int = MAX_REGIONS
    official: bool = False
    seed: int = 0


def new_network(
    oscar: OscarConfig,
    tokenizer: Tokenizer,
    options: RegionsOptions,
    matching: MatchingHeadConfig | None = None,
) -> AladinModel:
    """Build the paper's network with random weights, identical at every call."""
    if options.max_tokens > oscar.max_position_embeddings:
        raise ConfigError(
            f"max_tokens {options.max_tokens}: this network has {oscar.max_position_embeddings} "
            "positions"
        )
    regions = RegionsArchitecture(
        region_dim=oscar.img_feature_dim,
        max_regions=options.max_regions,
        max_label_tokens=options.max_tokens,
        start_token="unk" if options.official else "cls",
        norm=bool(oscar.use_img_layernorm),
        norm_eps=oscar.img_layer_norm_eps,
        dropout=oscar.hidden_dropout_prob,
    )
    config = ModelConfig(
        image_encoder=ImageEncoderConfig(name="regions", architecture=dump_config(regions)),
        text_encoder=TextEncoderConfig(architecture=oscar.bert(), max_tokens=options.max_tokens),
        image_tower=TowerConfig(
            trunk=None, aggregate="first_region" if options.official else "encoder"
        ),
        text_tower=TowerConfig(trunk=None),
        alignment=AlignmentHeadConfig(
            dim=None,
            official_trim=options.official,
            empty_fill="zero" if options.official else "exclude",
        ),
        matching=matching or MatchingHeadConfig(),
    )
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(options.seed)
        return AladinModel.create(config, tokenizer)


def oscar_renames(prefix: str = "") -> list[Rename]:
    """Return our backbone's names in OSCAR's network, all of which begin with `prefix`."""
    return [
        Rename(r"text\.encoder\.model\.(.+)", rf"{prefix}bert.\1"),
        Rename(r"image\.encoder\.embedding\.(weight|bias)", rf"{prefix}bert.img_embedding.\1"),
        Rename(r"image\.encoder\.norm\.(weight|bias)", rf"{prefix}bert.LayerNorm.\1"),
    ]


def oscar_left(prefix: str = "") -> list[Left]:
    """Return the tensors of OSCAR's network that ours does not use; see `oscar_renames`."""
    transform = r"transform\.(dense|LayerNorm)\.(weight|bias)"
    patterns = {
        r"bert\.embeddings\.position_ids": "counts positions from 0, as BERT does without it",
        r"bert\.pooler\.dense\.(weight|bias)": "the heads read the tokens, not this",
        r"classifier(\.\d)?\.(weight|bias)": f"classifier {_PAIRS}",
        rf"cls\.predictions\.(bias|decoder\.(weight|bias)|{transform})": f"word predictor {_PAIRS}",
        r"cls\.seq_relationship\.(weight|bias)": f"classifier {_PAIRS}",
    }
    front = prefix.replace(".", r"\.")
    return [Left(front + theirs, reason) for theirs, reason in patterns.items()]


def convert_oscar(folder: Path, out: Path, options: RegionsOptions) -> ConversionReport:
    """Convert to a network with OSCAR's backbone, as at the start of ALADIN's training.

    The alignment head has no parameters; the matching head is new.

    Args:
        folder: Folder with ``pytorch_model.bin``, ``config.json`` and ``vocab.txt``.
        out: Folder of the new checkpoint; it must not exist yet, or be empty.
        options: Options that the files do not contain.

    Raises:
        CheckpointError: If a file cannot be read, or a tensor is missing, unknown or of another
            shape; the message names it.
        ConfigError: If `out` is in use, or the options do not fit the network.
    """
    refuse_existing(out)
    config = read_oscar_config(folder)
    tokenizer = read_oscar_tokenizer(folder, config.vocab_size)
    source = folder / WEIGHTS
    tensors = named_tensors(read_torch_file(source), str(source))

    model = new_network(config, tokenizer, options)
    mapped = map_tensors(tensors, model.state_dict(), oscar_renames(), oscar_left(), str(source))
    return write_converted(model, mapped, source, out, options.seed, alignment_trained=False)

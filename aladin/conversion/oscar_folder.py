"""The folder in which OSCAR and VinVL publish a network: what it says of its architecture.

pytorch_model.bin   the tensors (`aladin.conversion.oscar`)
config.json         BERT's configuration, and the keys of the region embedding
vocab.txt           word pieces, one a line
and sometimes tokenizer_config.json, added_tokens.json and training_args.bin
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

from pydantic import ConfigDict
from tokenizers import Tokenizer
from tokenizers.models import WordPiece
from tokenizers.normalizers import BertNormalizer
from tokenizers.pre_tokenizers import BertPreTokenizer
from tokenizers.processors import TemplateProcessing

from aladin.errors import CheckpointError, ConfigError
from aladin.strict_config import parse_config

WEIGHTS, CONFIG, VOCABULARY = "pytorch_model.bin", "config.json", "vocab.txt"
_SPECIAL = ("[PAD]", "[UNK]", "[CLS]", "[SEP]")


@dataclass(frozen=True, kw_only=True)
class OscarConfig:
    """What of a ``config.json`` decides how its network computes.

    The keys with a default are those that early versions of the library did not write, when the
    default was all they could do.

    Attributes:
        img_feature_dim: numbers of a region's vector, 2054 with VinVL's geometry.
        img_feature_type: how regions enter; "dis_code" and the like are codes, not vectors.
        use_img_layernorm: whether a layer norm follows the regions' embedding.
        img_layer_norm_eps: of that layer norm.
        pruned_heads: attention heads that were cut out, by layer.
    """

    # Such a file also says what the network was trained for; none of that matters here.
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
        return {
            "model_type": "bert",
            "vocab_size": self.vocab_size,
            "hidden_size": self.hidden_size,
            "num_hidden_layers": self.num_hidden_layers,
            "num_attention_heads": self.num_attention_heads,
            "intermediate_size": self.intermediate_size,
            "max_position_embeddings": self.max_position_embeddings,
            "type_vocab_size": self.type_vocab_size,
            "hidden_act": self.hidden_act,
            "hidden_dropout_prob": self.hidden_dropout_prob,
            "attention_probs_dropout_prob": self.attention_probs_dropout_prob,
            "initializer_range": self.initializer_range,
            "layer_norm_eps": self.layer_norm_eps,
        }


def read_oscar_config(folder: Path) -> OscarConfig:
    """Read ``config.json``.

    Args:
        folder: of an OSCAR or VinVL checkpoint.

    Raises:
        CheckpointError: it is missing, lacks a key, or describes a network that reads no regions
            or computes otherwise than ours.
    """
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

    Args:
        folder: of an OSCAR or VinVL checkpoint.
        vocab_size: rows of the word embeddings; the vocabulary may be shorter.

    Raises:
        CheckpointError: the vocabulary is missing, too long or no vocabulary of BERT's, or tokens
            were added to it.
    """
    path = folder / VOCABULARY
    try:
        # Only a line feed ends an entry: a few word pieces are other kinds of white space.
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

    tokenizer = Tokenizer(WordPiece(vocabulary, unk_token="[UNK]"))  # type: ignore[call-arg]
    tokenizer.normalizer = BertNormalizer(lowercase=_lower_cases(folder))  # type: ignore[assignment]
    tokenizer.pre_tokenizer = BertPreTokenizer()  # type: ignore[assignment]
    tokenizer.post_processor = TemplateProcessing(  # type: ignore[assignment]
        single="[CLS] $A [SEP]",
        special_tokens=[(token, vocabulary[token]) for token in ("[CLS]", "[SEP]")],
    )
    return tokenizer


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

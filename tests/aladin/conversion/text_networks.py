"""Small random late-interaction networks for texts, in the folders of three libraries."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import torch
from safetensors.torch import load_file, save_file
from tokenizers import Tokenizer
from tokenizers.models import WordPiece
from tokenizers.normalizers import BertNormalizer
from tokenizers.pre_tokenizers import BertPreTokenizer
from tokenizers.processors import TemplateProcessing
from torch import nn
from transformers import BertConfig, BertModel, PreTrainedTokenizerFast

WORDS = ["a", "red", "dog", "runs", "on", "grass", "the", "star", "is", "green", "two", "##s"]
PIECES = [".", ",", "!", "[", "]", "q", "d", "unused", "##0", "##1", "0", "1"]
SPECIAL = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]

HIDDEN, DIM = 16, 12
LIBRARY = "sentence_transformers"

QUERIES = ["a red dog", "dogs run on the grass.", "the star is green", "a"]
DOCUMENTS = [
    "a red dog runs on the grass, and the star is green!",
    "two dogs.",
    "the star",
    "green green grass. a dog, two dogs; three dogs run",
    "[MASK] dog [SEP] star ...",
]


class Layout(NamedTuple):
    """A folder of one library.

    Attributes:
        write: Writes the folder.
        query_prefix: Characters before a query.
        document_prefix: Characters before a document.
    """

    write: Callable[[Path], None]
    query_prefix: str
    document_prefix: str


def tokenizer_of(more: Sequence[str] = ()) -> PreTrainedTokenizerFast:
    """A tokenizer of word pieces in BERT's layout, with further entries of the vocabulary."""
    entries = [*SPECIAL, *more, *WORDS, *PIECES]
    vocabulary = {entry: number for number, entry in enumerate(entries)}
    tokenizer = Tokenizer(WordPiece(vocabulary, unk_token="[UNK]"))
    tokenizer.normalizer = BertNormalizer(lowercase=True)
    tokenizer.pre_tokenizer = BertPreTokenizer()
    tokenizer.post_processor = TemplateProcessing(
        single="[CLS] $A [SEP]",
        special_tokens=[(each, vocabulary[each]) for each in ("[CLS]", "[SEP]")],
    )
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        pad_token="[PAD]",
        unk_token="[UNK]",
        cls_token="[CLS]",
        sep_token="[SEP]",
        mask_token="[MASK]",
        model_max_length=48,
    )


def write_network(folder: Path, tokenizer: PreTrainedTokenizerFast) -> None:
    """Write a BERT with random weights, and its tokenizer."""
    torch.manual_seed(3)
    config = BertConfig(
        vocab_size=len(tokenizer),
        hidden_size=HIDDEN,
        num_hidden_layers=2,
        num_attention_heads=2,
        intermediate_size=24,
        max_position_embeddings=48,
    )
    network = BertModel(config, add_pooling_layer=False).eval()
    with torch.no_grad():
        for parameter in network.parameters():  # so that tokens differ
            parameter.add_(0.2 * torch.randn_like(parameter))
    network.save_pretrained(folder)
    tokenizer.save_pretrained(folder)


def write_dense(folder: Path, in_dim: int, out_dim: int, **options: Any) -> None:
    """Write a linear map as the library does."""
    folder.mkdir()
    layer = nn.Linear(in_dim, out_dim, bias=options.get("bias", False))
    weights = {f"linear.{name}": value.detach() for name, value in layer.named_parameters()}
    if options.get("use_residual") and in_dim != out_dim:
        weights["residual.weight"] = torch.randn(out_dim, in_dim) / in_dim**0.5
    save_file(
        {name: value.contiguous() for name, value in weights.items()}, folder / "model.safetensors"
    )
    config = {
        "in_features": in_dim,
        "out_features": out_dim,
        "bias": False,
        "activation_function": "torch.nn.modules.linear.Identity",
    }
    write_json(folder / "config.json", config | options)


def write_json(path: Path, value: object) -> None:
    path.write_text(json.dumps(value), encoding="utf-8")


def write_modules(folder: Path, *modules: tuple[str, str]) -> None:
    """Write the list of modules, each with its folder and the name of its class."""
    listed = [
        {"idx": n, "name": str(n), "path": path, "type": kind}
        for n, (path, kind) in enumerate(modules)
    ]
    write_json(folder / "modules.json", listed)


_TRANSFORMER = f"{LIBRARY}.base.modules.transformer.Transformer"
_DENSE = f"{LIBRARY}.base.modules.dense.Dense"
_MASK = f"{LIBRARY}.multi_vector_encoder.modules.multi_vector_mask.MultiVectorMask"
_NORMALIZE = f"{LIBRARY}.base.modules.normalize.Normalize"


def write_of_library(
    folder: Path,
    *,
    options: dict[str, Any] | None = None,
    mask: dict[str, Any] | None = None,
    prompts: dict[str, str] | None = None,
) -> None:
    """Write a folder as `MultiVectorEncoder.save_pretrained` does."""
    write_network(folder, tokenizer_of())
    write_dense(
        folder / "1_Dense",
        HIDDEN,
        HIDDEN,
        bias=True,
        use_residual=True,
        activation_function="torch.nn.modules.activation.GELU",
        module_input_name="token_embeddings",
        module_output_name="token_embeddings",
    )
    write_dense(
        folder / "2_Dense",
        HIDDEN,
        DIM,
        use_residual=True,
        module_input_name="token_embeddings",
        module_output_name="token_embeddings",
    )
    write_modules(
        folder,
        ("", _TRANSFORMER),
        ("1_Dense", _DENSE),
        ("2_Dense", _DENSE),
        ("3_Mask", _MASK),
        ("4_Normalize", _NORMALIZE),
    )
    (folder / "3_Mask").mkdir()
    write_json(folder / "3_Mask" / "config.json", mask or {})
    (folder / "4_Normalize").mkdir()
    keys = {"module_input_name": "token_embeddings", "module_output_name": "token_embeddings"}
    write_json(folder / "4_Normalize" / "config.json", keys)
    write_json(
        folder / "sentence_bert_config.json",
        {
            "transformer_task": "feature-extraction",
            "modality_config": {
                "text": {"method": "forward", "method_output_name": "last_hidden_state"}
            },
            "module_output_name": "token_embeddings",
        }
        | (options or {}),
    )
    write_json(
        folder / "config_sentence_transformers.json",
        {
            "model_type": "MultiVectorEncoder",
            "prompts": prompts or {"query": "", "document": ""},
            "default_prompt_name": None,
            "similarity_fn_name": "maxsim",
        },
    )


def write_of_pylate(folder: Path, **options: Any) -> None:
    """Write a folder as PyLate 1 to 3 does: prefixes are tokens of the vocabulary."""
    write_network(folder, tokenizer_of(["[Q] ", "[D] "]))
    write_dense(folder / "1_Dense", HIDDEN, DIM)
    write_modules(folder, ("", _TRANSFORMER), ("1_Dense", "pylate.models.Dense.Dense"))
    write_json(folder / "sentence_bert_config.json", {"max_seq_length": 40, "do_lower_case": False})
    write_json(
        folder / "config_sentence_transformers.json",
        {
            "model_type": "ColBERT",
            "prompts": {},
            "query_prefix": "[Q] ",
            "document_prefix": "[D] ",
            "query_length": 12,
            "document_length": 20,
            "attend_to_expansion_tokens": False,
        }
        | options,
    )


def write_original(folder: Path) -> None:
    """Write a folder as the original ColBERT does: the linear map is in the network's file."""
    write_network(folder, tokenizer_of(["[unused0]", "[unused1]"]))
    weights = {
        f"bert.{name}": value for name, value in load_file(folder / "model.safetensors").items()
    }
    weights["linear.weight"] = torch.randn(DIM, HIDDEN)
    save_file(weights, folder / "model.safetensors", {"format": "pt"})
    config = json.loads((folder / "config.json").read_text())
    write_json(folder / "config.json", config | {"architectures": ["HF_ColBERT"]})
    write_json(
        folder / "artifact.metadata",
        {
            "query_token_id": "[unused0]",
            "doc_token_id": "[unused1]",
            "query_maxlen": 10,
            "doc_maxlen": 18,
            "attend_to_mask_tokens": False,
            "mask_punctuation": True,
        },
    )


def _library(folder: Path) -> None:
    write_of_library(
        folder,
        options={
            "query_length": 24,
            "document_length": 16,
            "query_expansion": {"strategy": "min", "length": 8, "attend": True, "token": None},
        },
        mask={"skiplist_words": [".", "dog"], "skiplist_tasks": ["query", "document"]},
        prompts={"query": "[Q] ", "document": "[D] "},
    )


def _plain(folder: Path) -> None:
    write_of_library(folder, mask={"skiplist_words": [], "skiplist_tasks": ["document"]})


LAYOUTS: dict[str, Layout] = {
    "library": Layout(_library, "[Q] ", "[D] "),
    "plain": Layout(_plain, "", ""),
    "pylate": Layout(write_of_pylate, "[Q] ", "[D] "),
    "original": Layout(write_original, "[unused0] ", "[unused1] "),
}

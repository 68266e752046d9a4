"""Small random late-interaction networks in folders, as the transformers library saves them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import transformers
from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from tokenizers.pre_tokenizers import Whitespace
from transformers import PreTrainedTokenizerFast

WORDS = [
    "a",
    "an",
    "and",
    "dog",
    "dogs",
    "red",
    "green",
    "grass",
    "run",
    "runs",
    "on",
    "the",
    "two",
    "of",
    "star",
    "circle",
    "describe",
    "image",
    "question",
    "query",
    "user",
    "assistant",
    ":",
    ".",
    "?",
]


def tokenizer_of(special: dict[str, str], more: list[str]) -> PreTrainedTokenizerFast:
    """A tokenizer of whole words with special tokens, which pads on the left."""
    entries = [*special.values(), *more, *WORDS, *(word.capitalize() for word in WORDS)]
    vocabulary = {entry: number for number, entry in enumerate(dict.fromkeys(entries))}
    tokenizer = Tokenizer(WordLevel(vocabulary, unk_token=special["unk_token"]))
    tokenizer.pre_tokenizer = Whitespace()
    wrapped = PreTrainedTokenizerFast(tokenizer_object=tokenizer, padding_side="left", **special)
    wrapped.add_special_tokens({"additional_special_tokens": more})
    return wrapped


def colpali(folder: Path) -> None:
    special = {
        "pad_token": "<pad>",
        "bos_token": "<bos>",
        "eos_token": "<eos>",
        "unk_token": "<unk>",
    }
    tokenizer = tokenizer_of(special, ["<image>"])
    images = transformers.SiglipImageProcessorPil(size={"height": 32, "width": 32})
    images.image_seq_length = 16
    processor = transformers.ColPaliProcessor(images, tokenizer)
    text = {
        "model_type": "gemma",
        "vocab_size": len(processor.tokenizer) + 8,
        "hidden_size": 16,
        "intermediate_size": 32,
        "num_hidden_layers": 2,
        "num_attention_heads": 2,
        "num_key_value_heads": 1,
        "head_dim": 8,
        "pad_token_id": 0,
    }
    vision = {
        "model_type": "siglip_vision_model",
        "hidden_size": 16,
        "intermediate_size": 24,
        "num_hidden_layers": 1,
        "num_attention_heads": 2,
        "image_size": 32,
        "patch_size": 8,
        "vision_use_head": False,
        "projection_dim": 16,
    }
    vlm = {
        "model_type": "paligemma",
        "text_config": text,
        "vision_config": vision,
        "image_token_id": processor.image_token_id,
        "projection_dim": 16,
        "hidden_size": 16,
    }
    config = transformers.ColPaliConfig(vlm_config=vlm, embedding_dim=12)
    save(folder, transformers.ColPaliForRetrieval, config, processor)


def colqwen2(folder: Path) -> None:
    special = {"pad_token": "<|endoftext|>", "eos_token": "<|im_end|>", "unk_token": "<unk>"}
    more = ["<|im_start|>", "<|vision_start|>", "<|vision_end|>", "<|image_pad|>", "<|video_pad|>"]
    tokenizer = tokenizer_of(special, more)
    images = transformers.Qwen2VLImageProcessorPil(
        size={"shortest_edge": 16 * 16 * 2, "longest_edge": 16 * 16 * 12},
        patch_size=8,
        merge_size=2,
        temporal_patch_size=2,
    )
    processor = transformers.ColQwen2Processor(images, tokenizer)
    number = tokenizer.convert_tokens_to_ids
    text = {
        "model_type": "qwen2_vl_text",
        "vocab_size": len(tokenizer) + 8,
        "hidden_size": 16,
        "intermediate_size": 32,
        "num_hidden_layers": 2,
        "num_attention_heads": 2,
        "num_key_value_heads": 1,
        "rope_parameters": {"rope_type": "default", "mrope_section": [1, 1, 2], "rope_theta": 1e4},
    }
    vision = {
        "model_type": "qwen2_vl_vision",
        "depth": 1,
        "embed_dim": 16,
        "hidden_size": 16,
        "num_heads": 2,
        "mlp_ratio": 2,
        "patch_size": 8,
        "spatial_merge_size": 2,
        "temporal_patch_size": 2,
    }
    vlm = {
        "model_type": "qwen2_vl",
        "text_config": text,
        "vision_config": vision,
        "image_token_id": number("<|image_pad|>"),
        "video_token_id": number("<|video_pad|>"),
        "vision_start_token_id": number("<|vision_start|>"),
        "vision_end_token_id": number("<|vision_end|>"),
    }
    config = transformers.ColQwen2Config(vlm_config=vlm, embedding_dim=12)
    save(folder, transformers.ColQwen2ForRetrieval, config, processor)


def colmodernvbert(folder: Path) -> None:
    special = {
        "pad_token": "[PAD]",
        "cls_token": "[CLS]",
        "sep_token": "[SEP]",
        "unk_token": "[UNK]",
    }
    tiles = [f"<row_{row}_col_{column}>" for row in range(1, 7) for column in range(1, 7)]
    more = ["<fake_token_around_image>", "<image>", "<end_of_utterance>", "<global-img>", *tiles]
    tokenizer = tokenizer_of(special, [*more, "<|begin_of_text|>"])
    images = transformers.Idefics3ImageProcessorPil(
        size={"longest_edge": 64}, max_image_size={"longest_edge": 32}
    )
    processor = transformers.ColModernVBertProcessor(images, tokenizer, image_seq_len=4)
    text = {
        "model_type": "modernbert",
        "vocab_size": len(tokenizer) + 8,
        "hidden_size": 16,
        "intermediate_size": 24,
        "num_hidden_layers": 2,
        "num_attention_heads": 2,
        "pad_token_id": 0,
    }
    vision = {
        "model_type": "siglip_vision_model",
        "hidden_size": 16,
        "intermediate_size": 24,
        "num_hidden_layers": 1,
        "num_attention_heads": 2,
        "image_size": 32,
        "patch_size": 8,
    }
    vlm = {
        "model_type": "modernvbert",
        "text_config": text,
        "vision_config": vision,
        "image_token_id": tokenizer.convert_tokens_to_ids("<image>"),
        "pixel_shuffle_factor": 2,
    }
    config = transformers.ColModernVBertConfig(vlm_config=vlm, embedding_dim=12)
    save(folder, transformers.ColModernVBertForRetrieval, config, processor)


def save(folder: Path, kind: Any, config: Any, processor: Any) -> None:
    torch.manual_seed(5)
    network = kind(config).eval()
    with torch.no_grad():
        for parameter in network.parameters():  # so that tokens differ
            parameter.add_(0.2 * torch.randn_like(parameter))
    network.save_pretrained(folder)
    processor.save_pretrained(folder)


FAMILIES: dict[str, Callable[[Path], None]] = {
    "colpali": colpali,
    "colqwen2": colqwen2,
    "colmodernvbert": colmodernvbert,
}


def load_source(kind: str, folder: Path) -> tuple[Any, Any]:
    """The library's own network and processor of a folder."""
    names = {"colpali": "ColPali", "colqwen2": "ColQwen2", "colmodernvbert": "ColModernVBert"}
    network = getattr(transformers, f"{names[kind]}ForRetrieval").from_pretrained(folder).eval()
    return network, getattr(transformers, f"{names[kind]}Processor").from_pretrained(folder)

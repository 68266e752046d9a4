"""Small random checkpoints of dual encoders, saved as the hub has them."""

from __future__ import annotations

import json
import re
import string
from pathlib import Path
from typing import Any, Literal, NamedTuple

import torch
from PIL import Image
from tokenizers import Tokenizer, normalizers, pre_tokenizers
from tokenizers.models import BPE, Unigram
from tokenizers.processors import TemplateProcessing
from tokenizers.trainers import BpeTrainer, UnigramTrainer
from transformers import (
    AutoConfig,
    AutoModel,
    BertTokenizer,
    CLIPTokenizer,
    GemmaTokenizer,
    PreTrainedModel,
    PreTrainedTokenizerFast,
    Siglip2Tokenizer,
    XLMRobertaTokenizer,
)
from transformers.models.clip.image_processing_pil_clip import CLIPImageProcessorPil
from transformers.models.siglip.image_processing_pil_siglip import SiglipImageProcessorPil
from transformers.models.siglip2.image_processing_pil_siglip2 import Siglip2ImageProcessorPil

from aladin_network.encoders.vocabulary import train_tokenizer

TEXTS = [
    "a small red circle above a striped blue square",
    "Two dogs run on the green grass, don't they?",
    "公园里有两只狗",
    "ein Hund läuft",
]
VISION = {
    "hidden_size": 24,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "intermediate_size": 32,
    "image_size": 32,
    "patch_size": 8,
}
TEXT = {
    "hidden_size": 20,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "intermediate_size": 32,
}

_NO_PUNCTUATION = str.maketrans("", "", string.punctuation)

Family = Literal[
    "clip", "metaclip_2", "chinese_clip", "siglip", "siglip2-fixed", "siglip2", "vit-xlm-roberta"
]
FAMILIES: tuple[Family, ...] = (
    "clip",
    "metaclip_2",
    "chinese_clip",
    "siglip",
    "siglip2-fixed",
    "siglip2",
    "vit-xlm-roberta",
)


class SavedDualEncoder(NamedTuple):
    """A random dual encoder on disk, and the library's own classes for it.

    Attributes:
        folder: configuration, weights, preprocessing and tokenizer.
        model: in evaluation mode.
        tokenizer: with its padding; cleans texts as in training, whatever the saved one does.
        processor: of photos.
        text_options: how this family tokenises.
    """

    folder: Path
    model: PreTrainedModel
    tokenizer: Any
    processor: Any
    text_options: dict[str, Any]

    @torch.inference_mode()
    def similarity(self, photos: list[Image.Image], texts: list[str], **options: Any) -> Any:
        """Return the cosines[photo, text] that the library computes."""
        pixels = self.processor(photos, return_tensors="pt")
        tokens = self.tokenizer(texts, return_tensors="pt", truncation=True, **self.text_options)
        images = self.model.get_image_features(**pixels, **options).pooler_output
        words = self.model.get_text_features(**tokens).pooler_output
        return torch.cosine_similarity(images.unsqueeze(1), words.unsqueeze(0), dim=2)


def _clip_tokenizer() -> Any:
    made = CLIPTokenizer().backend_tokenizer
    tokenizer = Tokenizer(BPE(unk_token="<|endoftext|>", end_of_word_suffix="</w>"))
    tokenizer.normalizer, tokenizer.pre_tokenizer = made.normalizer, made.pre_tokenizer
    trainer = BpeTrainer(
        vocab_size=330,
        special_tokens=["<|startoftext|>", "<|endoftext|>"],
        end_of_word_suffix="</w>",
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
    )
    tokenizer.train_from_iterator(TEXTS, trainer)
    model = json.loads(tokenizer.to_str())["model"]
    merges = [tuple(pair) for pair in model["merges"]]
    return CLIPTokenizer(vocab=model["vocab"], merges=merges, model_max_length=77)


def _gemma_tokenizer() -> Any:
    """SigLIP 2's: lower-cased byte pairs of the text with visible spaces, an end, no mask."""
    tokenizer = Tokenizer(BPE())
    tokenizer.normalizer = normalizers.Sequence(
        [normalizers.Lowercase(), normalizers.Replace(" ", "▁")]
    )
    tokenizer.pre_tokenizer = pre_tokenizers.Split("▁", "merged_with_next")
    special = ["<pad>", "<eos>", "<bos>", "<unk>", "<mask>"]
    tokenizer.train_from_iterator(TEXTS, BpeTrainer(vocab_size=150, special_tokens=special))
    model = json.loads(tokenizer.to_str())["model"]
    return Siglip2Tokenizer(
        vocab=model["vocab"],
        merges=[tuple(pair) for pair in model["merges"]],
        add_bos_token=False,
        add_eos_token=True,
        padding_side="right",
        model_input_names=["input_ids"],
        model_max_length=64,
    )


def _unigram(special: list[str]) -> list[tuple[str, float]]:
    tokenizer = Tokenizer(Unigram())
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace()
    trainer = UnigramTrainer(vocab_size=120, special_tokens=special, unk_token="<unk>")
    tokenizer.train_from_iterator(TEXTS, trainer)
    return [tuple(entry) for entry in json.loads(tokenizer.to_str())["model"]["vocab"]]


class _CanonicalTokenizer(PreTrainedTokenizerFast):
    """Texts as SigLIP was trained with: lower-cased, without punctuation."""

    def __call__(self, text: Any, *arguments: Any, **options: Any) -> Any:
        one = isinstance(text, str)
        cleaned = [
            re.sub(r"\s+", " ", each.lower().translate(_NO_PUNCTUATION)).strip()
            for each in ([text] if one else text)
        ]
        return super().__call__(cleaned[0] if one else cleaned, *arguments, **options)


def _siglip_tokenizer() -> Any:
    """SigLIP's sentence pieces in a ``tokenizer.json``; padding is the end token."""
    vocabulary = _unigram(["<unk>", "</s>"])
    tokenizer = Tokenizer(Unigram(vocabulary, unk_id=0))
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace()
    tokenizer.post_processor = TemplateProcessing(single="$A </s>", special_tokens=[("</s>", 1)])
    return _CanonicalTokenizer(
        tokenizer_object=tokenizer,
        eos_token="</s>",
        pad_token="</s>",
        unk_token="<unk>",
        model_input_names=["input_ids"],
        model_max_length=64,
    )


def _xlm_roberta_tokenizer() -> Any:
    return XLMRobertaTokenizer(vocab=_unigram(["<s>", "<pad>", "</s>", "<unk>"]))


def _bert_tokenizer() -> Any:
    return BertTokenizer(vocab=train_tokenizer(TEXTS, 200).get_vocab(), model_max_length=52)


def _build(family: Family) -> tuple[dict[str, Any], Any, Any, dict[str, Any]]:
    """Return a family's configuration, tokenizer, photo processor and tokenizer's options."""
    squashing = SiglipImageProcessorPil(size={"height": 32, "width": 32})
    cropping = CLIPImageProcessorPil(
        size={"shortest_edge": 32}, crop_size={"height": 32, "width": 32}
    )
    longest: dict[str, Any] = {"padding": True}
    to_64: dict[str, Any] = {"padding": "max_length", "max_length": 64}
    if family == "clip":
        tokenizer = _clip_tokenizer()
        text = {"max_position_embeddings": 77, **_special_ids(tokenizer)}
        return _dual(tokenizer, "clip", text), tokenizer, cropping, longest
    if family == "metaclip_2":
        tokenizer = _xlm_roberta_tokenizer()
        text = {"max_position_embeddings": 77, **_special_ids(tokenizer)}
        return _dual(tokenizer, "metaclip_2", text), tokenizer, cropping, longest
    if family == "chinese_clip":
        tokenizer = _bert_tokenizer()
        return _dual(tokenizer, "chinese_clip", {}), tokenizer, cropping, longest
    if family == "siglip":
        tokenizer = _siglip_tokenizer()
        text = {"projection_size": VISION["hidden_size"], **_special_ids(tokenizer)}
        return _dual(tokenizer, "siglip", text), tokenizer, squashing, to_64
    if family in ("siglip2", "siglip2-fixed"):
        tokenizer = _gemma_tokenizer()
        text = {"projection_size": VISION["hidden_size"], **_special_ids(tokenizer)}
        if family == "siglip2-fixed":
            return _dual(tokenizer, "siglip", text), tokenizer, squashing, to_64
        config = _dual(tokenizer, "siglip2", text)
        del config["vision_config"]["image_size"]
        config["vision_config"]["num_patches"] = 16
        processor = Siglip2ImageProcessorPil(patch_size=8, max_num_patches=20)
        return config, tokenizer, processor, to_64
    tokenizer = _xlm_roberta_tokenizer()
    config = _dual(tokenizer, "vision-text-dual-encoder", {"model_type": "xlm-roberta"})
    config["text_config"] |= {"max_position_embeddings": 66, **_special_ids(tokenizer)}
    config["vision_config"] = VISION | {"model_type": "vit"}
    return config, tokenizer, squashing, longest


def _dual(tokenizer: Any, model_type: str, text: dict[str, Any]) -> dict[str, Any]:
    return {
        "model_type": model_type,
        "vision_config": dict(VISION),
        "text_config": TEXT | {"vocab_size": len(tokenizer)} | text,
        "projection_dim": 16,
    }


def _special_ids(tokenizer: Any) -> dict[str, Any]:
    names = ("pad_token_id", "bos_token_id", "eos_token_id")
    return {name: getattr(tokenizer, name) for name in names}


def _save_as_on_the_hub(family: Family, tokenizer: Any, folder: Path) -> None:
    """Save a tokenizer with the class that the hub's files name, which may clean less.

    SigLIP 2's is Gemma's, which keeps the case; SigLIP's own cleans texts in Python, and needs a
    package that may be missing, so that its ``tokenizer.json`` is read, which may clean nothing.
    """
    if family in ("siglip2", "siglip2-fixed"):
        model = json.loads(tokenizer.backend_tokenizer.to_str())["model"]
        tokenizer = GemmaTokenizer(
            vocab=model["vocab"],
            merges=[tuple(pair) for pair in model["merges"]],
            add_bos_token=False,
            add_eos_token=True,
            padding_side="right",
            model_input_names=["input_ids"],
            model_max_length=64,
        )
    tokenizer.save_pretrained(folder)
    if family == "siglip":
        file = folder / "tokenizer_config.json"
        hub = {"tokenizer_class": "SiglipTokenizer", "do_lower_case": True}
        file.write_text(json.dumps(json.loads(file.read_text("utf-8")) | hub), "utf-8")


def save_dual_encoder(family: Family, folder: Path) -> SavedDualEncoder:
    """Save a random dual encoder with weights wide enough to tell photos and texts apart."""
    config, tokenizer, processor, text_options = _build(family)
    with torch.random.fork_rng(devices=[]), torch.no_grad():
        torch.manual_seed(3)
        configuration = AutoConfig.for_model(config.pop("model_type"), **config)
        model = AutoModel.from_config(configuration).eval()
        for parameter in model.parameters():
            parameter.add_(0.3 * torch.randn(parameter.shape))
    model.save_pretrained(folder)
    _save_as_on_the_hub(family, tokenizer, folder)
    processor.save_pretrained(folder)
    return SavedDualEncoder(folder, model, tokenizer, processor, text_options)

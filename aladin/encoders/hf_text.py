"""The `hf` text encoder: any text tower of the transformers library."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import cast

import torch
from tokenizers import Tokenizer
from torch import Tensor, nn
from transformers import AutoTokenizer
from transformers.configuration_utils import PretrainedConfig

from aladin.config import TextEncoderConfig
from aladin.encoders.base import Features, TextBatch
from aladin.encoders.frozen import Freezable
from aladin.encoders.transformers_model import build_tower, load_tower
from aladin.errors import CheckpointError, ConfigError, TextTooLongError


class HFTextEncoder(Freezable):
    """Word-piece states of a text transformer, with the tokenizer that belongs to it."""

    def __init__(
        self, config: TextEncoderConfig, tokenizer: Tokenizer, model: nn.Module | None = None
    ) -> None:
        """Build from a complete configuration, with random weights unless `model` is given.

        Args:
            config: `architecture` is set; its ``vocab_size`` is at least the tokenizer's.
            tokenizer: adds its own special tokens.
            model: the tower that `architecture` describes.

        Raises:
            ConfigError: `architecture` is missing, impossible, or too small for the tokenizer.
        """
        super().__init__(config.frozen)
        if config.architecture is None:
            raise ConfigError("text_encoder: give a source or an architecture")
        self.config = config
        self.model = model if model is not None else build_tower(config.architecture)
        self.freeze()
        settings = cast(PretrainedConfig, self.model.config)
        self.dim = int(settings.hidden_size)
        rows = int(settings.vocab_size)
        if tokenizer.get_vocab_size() > rows:
            raise ConfigError(
                f"text_encoder: the tokenizer has {tokenizer.get_vocab_size()} entries, "
                f"the architecture's vocab_size is {rows}"
            )
        self.tokenizer = Tokenizer.from_str(tokenizer.to_str())
        self.tokenizer.no_padding()
        self.tokenizer.no_truncation()
        self._truncating = Tokenizer.from_str(self.tokenizer.to_str())
        self._truncating.enable_truncation(config.max_tokens)

    @classmethod
    def from_source(cls, config: TextEncoderConfig, tokenizer: Tokenizer | None) -> HFTextEncoder:
        """Load the pretrained weights and the tokenizer that ``config.source`` names.

        Args:
            config: `source` is set, or `architecture` with a `tokenizer`.
            tokenizer: for a random start; a pretrained source brings its own.

        Raises:
            ConfigError: a random start without a tokenizer.
        """
        if config.source is None:
            if tokenizer is None:
                raise ConfigError("text_encoder: a random start needs a trained tokenizer")
            return cls(_sized_for(config, tokenizer), tokenizer)
        source = config.source
        model, architecture = load_tower(source, "text")
        config = dataclasses.replace(config, architecture=architecture)
        return cls(config, _load_tokenizer(source), model)

    def preprocess(self, texts: Sequence[str], *, truncate: bool = False) -> TextBatch:
        """Tokenise and pad to the longest text.

        Args:
            texts: at least one.
            truncate: cut long texts instead of refusing them.

        Raises:
            TextTooLongError: a text has more than ``max_tokens`` tokens and `truncate` is off.
        """
        tokenizer = self._truncating if truncate else self.tokenizer
        encodings = tokenizer.encode_batch(list(texts))
        longest = max(len(encoding.ids) for encoding in encodings)
        if longest > self.config.max_tokens:
            raise TextTooLongError(longest, self.config.max_tokens)
        ids = torch.zeros(len(encodings), longest, dtype=torch.long)
        mask = torch.zeros(len(encodings), longest, dtype=torch.bool)
        content = torch.zeros(len(encodings), longest, dtype=torch.bool)
        for row, encoding in enumerate(encodings):
            length = len(encoding.ids)
            ids[row, :length] = torch.tensor(encoding.ids)
            mask[row, :length] = True
            content[row, :length] = ~torch.tensor(encoding.special_tokens_mask, dtype=torch.bool)
        return TextBatch(ids, mask, content)

    def forward(self, batch: TextBatch) -> Features:
        """Encode tokenised texts."""
        with torch.set_grad_enabled(torch.is_grad_enabled() and not self.frozen):
            states: Tensor = self.model(
                input_ids=batch.ids, attention_mask=batch.mask.long()
            ).last_hidden_state
        return Features(states, batch.mask, batch.content)

    def spans(self, text: str) -> list[tuple[int, int]]:
        """Return the characters [start, end) of each content token."""
        encoding = self._truncating.encode(text)
        return [
            span
            for span, special in zip(encoding.offsets, encoding.special_tokens_mask, strict=True)
            if not special
        ]


def _load_tokenizer(source: str) -> Tokenizer:
    try:
        wrapper = AutoTokenizer.from_pretrained(source)
        tokenizer = Tokenizer.from_str(wrapper.backend_tokenizer.to_str())
    except (OSError, ValueError, AttributeError) as error:
        raise CheckpointError(f"{source}: cannot load a tokenizer ({error})") from error
    # Where its files are missing, transformers makes up one that knows special tokens only.
    if tokenizer.get_vocab_size() <= len(wrapper.all_special_ids):
        raise CheckpointError(f"{source}: cannot load a tokenizer (it has no vocabulary)")
    return tokenizer


def _sized_for(config: TextEncoderConfig, tokenizer: Tokenizer) -> TextEncoderConfig:
    """Fill in the vocabulary size of a random start that leaves it open."""
    architecture = dict(config.architecture or {})
    architecture.setdefault("vocab_size", tokenizer.get_vocab_size())
    return dataclasses.replace(config, architecture=architecture or None)

"""The `hf` text encoder: any text tower of the transformers library."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable
from typing import cast

import torch
from tokenizers import Tokenizer
from torch import Tensor, nn
from transformers import AutoTokenizer
from transformers.configuration_utils import PretrainedConfig

from aladin.config import TextEncoderConfig
from aladin.encoders.base import Features, TextBatch
from aladin.encoders.tokenized_text import TokenizedTextEncoder, random_start
from aladin.encoders.transformers_model import build_tower, load_tower
from aladin.encoders.vocabulary import train_tokenizer
from aladin.errors import CheckpointError, ConfigError


class HFTextEncoder(TokenizedTextEncoder):
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
        super().__init__(config, tokenizer)
        if config.architecture is None:
            raise ConfigError("text_encoder: give a source or an architecture")
        self.model = model if model is not None else build_tower(config.architecture)
        self.freeze()
        settings = cast(PretrainedConfig, self.model.config)
        self.dim = int(settings.hidden_size)
        self._check_vocabulary(int(settings.vocab_size))

    @classmethod
    def from_source(cls, config: TextEncoderConfig, tokenizer: Tokenizer | None) -> HFTextEncoder:
        """Load the pretrained weights and the tokenizer that ``config.source`` names."""
        if config.source is None:
            return cls(*random_start(config, tokenizer))
        source = config.source
        model, architecture = load_tower(source, "text")
        config = dataclasses.replace(config, architecture=architecture)
        return cls(config, _load_tokenizer(source), model)

    @staticmethod
    def learn_tokenizer(texts: Iterable[str], vocabulary_size: int) -> Tokenizer:
        """Learn word pieces; see `train_tokenizer`."""
        return train_tokenizer(texts, vocabulary_size)

    def forward(self, batch: TextBatch) -> Features:
        """Encode tokenised texts."""
        with torch.set_grad_enabled(torch.is_grad_enabled() and not self.frozen):
            states: Tensor = self.model(
                input_ids=batch.ids, attention_mask=batch.mask.long()
            ).last_hidden_state
        return Features(states, batch.mask, batch.content)


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

"""What every text encoder does with its tokenizer: from texts to ids, and back to characters."""

from __future__ import annotations

import dataclasses
from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence

import torch
from tokenizers import Tokenizer

from aladin.config import TextEncoderConfig
from aladin.encoders.base import Features, TextBatch
from aladin.encoders.frozen import Freezable
from aladin.errors import ConfigError, TextTooLongError


class TokenizedTextEncoder(Freezable, ABC):
    """Base of the text encoders: it owns the tokenizer, a subclass the network.

    Attributes:
        config: complete, so that a checkpoint rebuilds the same encoder from it.
        tokenizer: neither pads nor truncates.
        dim: width of the states; set by the subclass.
    """

    config: TextEncoderConfig
    dim: int

    def __init__(self, config: TextEncoderConfig, tokenizer: Tokenizer) -> None:
        """Take the tokenizer.

        Args:
            config: gives the longest text.
            tokenizer: adds its own special tokens.
        """
        super().__init__(config.frozen)
        self.config = config
        self.tokenizer = Tokenizer.from_str(tokenizer.to_str())
        self.tokenizer.no_padding()
        self.tokenizer.no_truncation()
        self._truncating = Tokenizer.from_str(self.tokenizer.to_str())
        self._truncating.enable_truncation(config.max_tokens)

    @classmethod
    @abstractmethod
    def from_source(
        cls, config: TextEncoderConfig, tokenizer: Tokenizer | None
    ) -> TokenizedTextEncoder:
        """Build for training: pretrained where ``config.source`` says so, else random.

        Args:
            config: of a recipe.
            tokenizer: for a random start; a pretrained source brings its own.

        Raises:
            ConfigError: an impossible configuration, or a random start without a tokenizer.
            CheckpointError: the source cannot be loaded.
        """

    @staticmethod
    @abstractmethod
    def learn_tokenizer(texts: Iterable[str], vocabulary_size: int) -> Tokenizer:
        """Learn the kind of tokenizer that a random start of this encoder reads with.

        Args:
            texts: the training captions.
            vocabulary_size: upper bound, special tokens included.
        """

    @abstractmethod
    def forward(self, batch: TextBatch) -> Features:
        """Encode tokenised texts."""

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

    def spans(self, text: str) -> list[tuple[int, int]]:
        """Return the characters [start, end) of each content token."""
        encoding = self._truncating.encode(text)
        return [
            span
            for span, special in zip(encoding.offsets, encoding.special_tokens_mask, strict=True)
            if not special
        ]

    def _check_vocabulary(self, rows: int) -> None:
        """Refuse a tokenizer with more entries than the network has embeddings."""
        if self.tokenizer.get_vocab_size() > rows:
            raise ConfigError(
                f"text_encoder: the tokenizer has {self.tokenizer.get_vocab_size()} entries, "
                f"the architecture's vocab_size is {rows}"
            )


def random_start(
    config: TextEncoderConfig, tokenizer: Tokenizer | None
) -> tuple[TextEncoderConfig, Tokenizer]:
    """Complete what a random start needs: the vocabulary's size is the tokenizer's.

    Raises:
        ConfigError: there is no tokenizer.
    """
    if tokenizer is None:
        raise ConfigError("text_encoder: a random start needs a trained tokenizer")
    architecture = dict(config.architecture or {})
    architecture.setdefault("vocab_size", tokenizer.get_vocab_size())
    return dataclasses.replace(config, architecture=architecture), tokenizer

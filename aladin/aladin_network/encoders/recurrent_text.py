"""The `gru` and `lstm` text encoders: word vectors and a recurrent network (VSE++, DBL, IMC)."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable
from dataclasses import dataclass
from typing import ClassVar

import torch
from pydantic import ConfigDict
from tokenizers import Tokenizer
from torch import Tensor, nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

from aladin_network.config import STRICT, TextEncoderConfig, dump_config, parse_config
from aladin_network.encoders.base import Features, TextBatch
from aladin_network.encoders.tokenized_text import (
    TokenizedTextEncoder,
    random_start,
    train_word_tokenizer,
)
from aladin_network.errors import ConfigError


@dataclass(frozen=True, kw_only=True)
class RecurrentArchitecture:
    """Content of ``text_encoder.architecture`` for a recurrent encoder.

    Attributes:
        vocab_size: Number of word vectors; a random initialisation takes that of the tokenizer.
        embedding_size: Size of a word vector.
        hidden_size: Size of the states, in each direction.
        layers: Number of recurrent layers.
        bidirectional: Whether the text is also read backwards; the states of the two directions are
            averaged.
        dropout: Dropout of the word vectors.
        special_tokens_are_words: ``<start>`` and ``<end>`` take part in word-level scores, as
            in DBL's official code.
    """

    __pydantic_config__: ClassVar[ConfigDict] = STRICT

    vocab_size: int
    embedding_size: int = 300
    hidden_size: int = 1024
    layers: int = 1
    bidirectional: bool = True
    dropout: float = 0.4
    special_tokens_are_words: bool = True


class RecurrentTextEncoder(TokenizedTextEncoder):
    """States of a recurrent network over whole words.

    Element 0 of its output is the state at the last real token, a text's summary; the states
    of all tokens follow. Where both directions are read, the backward one has seen a single
    token there, which is what IMC's code computes.
    """

    cell: ClassVar[type[nn.GRU | nn.LSTM]]

    def __init__(self, config: TextEncoderConfig, tokenizer: Tokenizer) -> None:
        """Build with random weights.

        Args:
            config: ``architecture`` is a `RecurrentArchitecture` as plain data.
            tokenizer: Tokenizer of whole words.

        Raises:
            ConfigError: If a source is named, or the architecture is impossible or too small for
                the tokenizer.
        """
        super().__init__(config, tokenizer)
        if config.source is not None:
            raise ConfigError(
                f"text_encoder: {config.name} starts at random, it has no source {config.source!r}"
            )
        self.architecture = parse_config(
            RecurrentArchitecture, config.architecture or {}, "text_encoder.architecture"
        )
        # Includes the defaults, so that a checkpoint does not depend on them.
        self.config = dataclasses.replace(config, architecture=dump_config(self.architecture))
        self.dim = self.architecture.hidden_size
        self._check_vocabulary(self.architecture.vocab_size)
        try:
            self.embedding = nn.Embedding(
                self.architecture.vocab_size, self.architecture.embedding_size
            )
            self.dropout = nn.Dropout(self.architecture.dropout)
            self.network = self.cell(
                self.architecture.embedding_size,
                self.architecture.hidden_size,
                self.architecture.layers,
                batch_first=True,
                bidirectional=self.architecture.bidirectional,
            )
        except (ValueError, RuntimeError) as error:
            raise ConfigError(f"text_encoder.architecture: {error}") from error
        nn.init.uniform_(self.embedding.weight, -0.1, 0.1)
        self.freeze()

    @classmethod
    def from_source(
        cls, config: TextEncoderConfig, tokenizer: Tokenizer | None
    ) -> RecurrentTextEncoder:
        """Start with random weights: there are no pretrained encoders of this kind."""
        return cls(*random_start(config, tokenizer))

    @staticmethod
    def learn_tokenizer(texts: Iterable[str], vocabulary_size: int) -> Tokenizer:
        """Train a whole-word tokenizer; see `train_word_tokenizer`."""
        return train_word_tokenizer(texts, vocabulary_size)

    def forward(self, batch: TextBatch) -> Features:
        """Encode tokenised texts: the summary, then all tokens."""
        with torch.set_grad_enabled(torch.is_grad_enabled() and not self.frozen):
            outputs = self._read(batch)  # (batch, tokens, dim)
        last = batch.mask.sum(dim=1) - 1
        rows = torch.arange(len(last), device=last.device)
        summary = outputs[rows, last].unsqueeze(1)  # (batch, 1, dim)
        words = batch.mask if self.architecture.special_tokens_are_words else batch.content
        one = batch.mask.new_ones(len(last), 1)
        return Features(
            torch.cat([summary, outputs], dim=1),  # (batch, 1 + tokens, dim)
            torch.cat([one, batch.mask], dim=1),
            torch.cat([~one, words], dim=1),
        )

    def spans(self, text: str) -> list[tuple[int, int]]:
        """Return the characters [start, end) of each content token.

        ``<start>`` and ``<end>``, where they count as words, are empty places at the text's ends.
        """
        spans = super().spans(text)
        if not self.architecture.special_tokens_are_words:
            return spans
        return [(0, 0), *spans, (len(text), len(text))]

    def _read(self, batch: TextBatch) -> Tensor:
        """Run the network over the real tokens; padded positions are zeros."""
        # Full precision throughout: rounding would accumulate from step to step, and not every
        # backend has the packed kernel in bfloat16.
        with torch.autocast(batch.ids.device.type, enabled=False):
            vectors = self.dropout(self.embedding(batch.ids))
            lengths = batch.mask.sum(dim=1).cpu()
            packed = pack_padded_sequence(vectors, lengths, batch_first=True, enforce_sorted=False)
            outputs, _ = pad_packed_sequence(
                self.network(packed)[0], batch_first=True, total_length=batch.ids.shape[1]
            )
        directions = 2 if self.architecture.bidirectional else 1
        return outputs.unflatten(-1, (directions, self.dim)).mean(dim=-2)


class GRUTextEncoder(RecurrentTextEncoder):
    """Gated recurrent units, as in VSE++ and DBL."""

    cell = nn.GRU


class LSTMTextEncoder(RecurrentTextEncoder):
    """Long short-term memory, as in IMC."""

    cell = nn.LSTM

"""The `gru` and `lstm` text encoders: word vectors and a recurrent network (VSE++, DBL, IMC)."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import torch
from pydantic import ConfigDict
from tokenizers import Tokenizer
from torch import Tensor, nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

from aladin_network.config import STRICT, TextEncoderConfig, dump_config, parse_config
from aladin_network.encoders.base import Features, TextBatch, TextEncoder
from aladin_network.encoders.vocabulary import (
    random_start,
    train_word_tokenizer,
)
from aladin_network.errors import ConfigError


@dataclass(frozen=True, kw_only=True)
class RecurrentArchitecture:
    """Content of ``text_encoder.architecture`` for a recurrent encoder.

    Attributes:
        vocab_size: Number of word vectors; a random initialisation takes that of the tokenizer.
        hidden_size: Size of the states, in each direction.
        bidirectional: Whether the text is also read backwards; the states of the two directions are
            averaged.
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


class RecurrentTextEncoder(TextEncoder):
    """States of a recurrent network over whole words.

    Element 0 of its output is the state at the last real token, a text's summary; the states
    of all tokens follow. Where both directions are read, the backward one has seen a single
    token there, which is what IMC's code computes.
    """

    cell: ClassVar[type[nn.GRU | nn.LSTM]]
    # ONNX's operator, and torch's gates in its order.
    operator: ClassVar[str]
    gates: ClassVar[tuple[int, ...]]

    def __init__(self, config: TextEncoderConfig, tokenizer: Tokenizer) -> None:
        """Build with random weights."""
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
        self.special_tokens_are_words = self.architecture.special_tokens_are_words
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
        self.reset_parameters()
        self.freeze()

    def reset_parameters(self) -> None:
        """Draw the words anew; the network below does so itself."""
        nn.init.uniform_(self.embedding.weight, -0.1, 0.1)

    @classmethod
    def from_source(
        cls, config: TextEncoderConfig, tokenizer: Tokenizer | None
    ) -> RecurrentTextEncoder:
        """Start with random weights: there are no pretrained encoders of this kind.

        The architecture may name a file of pretrained word vectors as ``vectors``, see
        `read_word_vectors`; words that are not in it start at random.
        """
        config, tokenizer = random_start(config, tokenizer)
        architecture = dict(config.architecture or {})
        # The vectors become weights: a checkpoint does not depend on the file.
        file = architecture.pop("vectors", None)
        encoder = cls(dataclasses.replace(config, architecture=architecture), tokenizer)
        if file is not None:
            size = encoder.architecture.embedding_size
            found = read_word_vectors(Path(file).expanduser(), tokenizer.get_vocab(), size)
            with torch.no_grad():
                encoder.embedding.weight[list(found)] = torch.tensor(list(found.values()))
        return encoder

    @staticmethod
    def learn_tokenizer(texts: Iterable[str], vocabulary_size: int) -> Tokenizer:
        """Train a whole-word tokenizer; see `train_word_tokenizer`."""
        return train_word_tokenizer(texts, vocabulary_size)

    def forward(self, batch: TextBatch) -> Features:
        """Encode tokenised texts: the summary, then all tokens."""
        with torch.set_grad_enabled(torch.is_grad_enabled() and not self.frozen):
            outputs = self._read(batch)  # (batch, tokens, dim)
        last = batch.mask.sum(dim=1) - 1
        count = last.shape[0]  # not len(), which an export takes for a constant
        rows = torch.arange(count, device=last.device)
        summary = outputs[rows, last].unsqueeze(1)  # (batch, 1, dim)
        words = batch.mask if self.special_tokens_are_words else batch.content
        one = batch.mask.new_ones(count, 1)
        return Features(
            torch.cat([summary, outputs], dim=1),  # (batch, 1 + tokens, dim)
            torch.cat([one, batch.mask], dim=1),
            torch.cat([~one, words], dim=1),
        )

    def _read(self, batch: TextBatch) -> Tensor:
        """Run the network over the real tokens; padded positions are zeros."""
        if torch.compiler.is_compiling():
            return self._by_operator(self.embedding(batch.ids), batch.mask)
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

    def _by_operator(self, vectors: Tensor, mask: Tensor) -> Tensor:
        """Do the same by ONNX's operator, for an export: torch's packed sequences have none.

        A text is reversed before it is read backwards: not every runtime finds the last word of a
        padded text.
        """
        places = torch.arange(mask.shape[1], device=mask.device)  # (tokens,)
        back = mask.sum(dim=1, keepdim=True) - 1 - places  # (batch, tokens)
        back = torch.where(back >= 0, back, places).unsqueeze(-1)
        suffixes = ("", "_reverse") if self.architecture.bidirectional else ("",)
        outputs = vectors
        for layer in range(self.architecture.layers):
            read: list[Tensor] = []
            for suffix in suffixes:
                inputs = _in_order(outputs, back) if suffix else outputs
                found = self._operator(inputs, f"l{layer}{suffix}")
                read.append(_in_order(found, back) if suffix else found)
            outputs = torch.cat(read, dim=-1)
        outputs = outputs.unflatten(-1, (len(suffixes), self.dim)).mean(dim=-2)
        return outputs * mask.unsqueeze(-1)

    def _operator(self, inputs: Tensor, name: str) -> Tensor:
        """Run one layer in one direction."""
        attributes: dict[str, Any] = {"hidden_size": self.dim, "direction": "forward"}
        if self.operator == "GRU":
            attributes["linear_before_reset"] = 1  # torch's form
        weights = [
            torch.cat([self._gates(f"{part}_{name}") for part in parts]).unsqueeze(0)
            for parts in (("weight_ih",), ("weight_hh",), ("bias_ih", "bias_hh"))
        ]
        batch, tokens, _ = inputs.shape
        found = torch.onnx.ops.symbolic(
            self.operator,
            [inputs.transpose(0, 1), *weights],
            attributes,
            dtype=inputs.dtype,
            shape=(tokens, 1, batch, self.dim),
        )
        return found[:, 0].transpose(0, 1)

    def _gates(self, name: str) -> Tensor:
        """Return a parameter with its gates in the order of the operator."""
        parts = getattr(self.network, name).chunk(len(self.gates))
        return torch.cat([parts[gate] for gate in self.gates])


def read_word_vectors(file: Path, rows: Mapping[str, int], size: int) -> dict[int, list[float]]:
    """Read the pretrained vectors of a vocabulary's words, by row; those that it lacks are missing.

    The file is text in GloVe's format: a line for each word, the word and its numbers.
    """
    found: dict[int, list[float]] = {}
    try:
        with file.open(encoding="utf-8") as lines:
            for number, line in enumerate(lines, start=1):
                word, *values = line.rstrip().rsplit(" ", size)  # some words contain a space
                wanted = word in rows
                if (wanted or number == 1) and (len(values) != size or " " in word):
                    raise ConfigError(f"{file}: line {number}: expected a word and {size} numbers")
                if wanted:
                    found[rows[word]] = [float(value) for value in values]
    except (OSError, ValueError) as error:
        raise ConfigError(f"{file}: not a file of word vectors ({error})") from error
    if not found:
        raise ConfigError(f"{file}: holds none of the vocabulary's {len(rows)} words")
    return found


def _in_order(states: Tensor, places: Tensor) -> Tensor:
    """Take (batch, tokens, 1) places of (batch, tokens, dim) states."""
    return states.gather(1, places.expand(-1, -1, states.shape[2]))


class GRUTextEncoder(RecurrentTextEncoder):
    """Gated recurrent units, as in VSE++ and DBL."""

    cell = nn.GRU
    operator = "GRU"
    gates = (1, 0, 2)


class LSTMTextEncoder(RecurrentTextEncoder):
    """Long short-term memory, as in IMC."""

    cell = nn.LSTM
    operator = "LSTM"
    gates = (0, 3, 1, 2)

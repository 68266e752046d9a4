"""Tokenisation of texts by the tokenizers library, without torch."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from unicodedata import east_asian_width

import numpy as np
from tokenizers import Encoding, Tokenizer

from aladin_network.config import TextEncoderConfig
from aladin_network.encoders.readers import TokenizedTexts
from aladin_network.errors import TextTooLongError

# Characters that sentence pieces and byte-level pieces use for the space before a word; alone, such
# a mark is a token without a character of its own, and not a word.
_SPACE_MARKS = "▁Ġ"
# Names of the token of what is not in a vocabulary.
_UNKNOWN = frozenset({"[UNK]", "<unk>"})

# Texts of different lengths are padded to the longest. Another call of the network takes as long as
# some 10 tokens with ONNX Runtime and 25 with torch (MiniLM on one thread); so much padding is
# allowed. Beyond some hundred tokens, more of them at a time take no less time each, but memory.
_TOKENS_OF_A_CALL = 16
_MOST_TOKENS = 2048


class Tokenization:
    """A tokenizer that neither pads nor truncates, and the longest text of an encoder."""

    config: TextEncoderConfig
    special_tokens_are_words: bool = False

    def __init__(self, config: TextEncoderConfig, tokenizer: Tokenizer) -> None:
        self.config = config
        if tokenizer.padding is not None or tokenizer.truncation is not None:
            tokenizer = Tokenizer.from_str(tokenizer.to_str())
            tokenizer.no_padding()
            tokenizer.no_truncation()
        self.tokenizer = tokenizer

    @cached_property
    def _truncating(self) -> Tokenizer:
        """The tokenizer with truncation, made when it is needed: a vocabulary takes 10 MB."""
        truncating = Tokenizer.from_str(self.tokenizer.to_str())
        truncating.enable_truncation(self.config.max_tokens)
        return truncating

    def tokenize(self, texts: Sequence[str], *, truncate: bool = False) -> TokenizedTexts:
        """Tokenise and pad to the longest text, or to `pad_to` tokens if that is set."""
        tokenizer = self._truncating if truncate else self.tokenizer
        encodings = tokenizer.encode_batch(list(texts))
        longest = max(len(encoding.ids) for encoding in encodings)
        if longest > self.config.max_tokens:
            raise TextTooLongError(longest, self.config.max_tokens)
        shape = (len(encodings), self.config.pad_to or longest)
        ids = np.full(shape, self.config.pad_id, dtype=np.int64)
        mask = np.zeros(shape, dtype=np.bool_)
        content = np.zeros(shape, dtype=np.bool_)
        for row, encoding in enumerate(encodings):
            length = len(encoding.ids)
            ids[row, :length] = encoding.ids
            mask[row, :length] = True
            content[row, :length] = _words(encoding)
        return TokenizedTexts(ids, mask, content)

    def count_too_long(self, texts: Sequence[str]) -> int:
        """Count the texts that have more than ``max_tokens`` tokens."""
        encodings = self.tokenizer.encode_batch_fast(list(texts))
        return sum(len(encoding.ids) > self.config.max_tokens for encoding in encodings)

    def spans(self, text: str) -> list[tuple[int, int]]:
        """Return the characters [start, end) of each content token, without spaces around them.

        Special tokens that count as words are empty places at the text's ends.
        """
        encoding = self._truncating.encode(text)
        spans = [
            _without_spaces(text, start, end)
            for (start, end), word in zip(encoding.offsets, _words(encoding), strict=True)
            if word
        ]
        return [(0, 0), *spans, (len(text), len(text))] if self.special_tokens_are_words else spans

    def knows_letters(self, text: str) -> bool:
        """Return whether the vocabulary has at least half of a text's letters, in words.

        It has not those of an unknown token, those in pieces (bytes), and neighbours that each
        stand for themselves, as of a script that it has the letters of and nothing else. Only in
        scripts of wide characters, a letter may be a word.
        """
        encoding = self._truncating.encode(text)
        tokens, sizes = [0] * len(text), [0] * len(text)
        for name, (start, end) in zip(encoding.tokens, encoding.offsets, strict=True):
            for place in range(start, end):
                tokens[place] += 1
                sizes[place] = 0 if name in _UNKNOWN else end - start
        letters = [place for place, character in enumerate(text) if character.isalpha()]
        known = [
            place
            for place in letters
            if tokens[place] == 1 and sizes[place] and not _is_alone(text, place, sizes)
        ]
        return 2 * len(known) >= len(letters)

    def shortened(self, text: str, max_tokens: int) -> str:
        """Return the beginning of a text, at most so many tokens and one word piece at least."""
        encoding = self.tokenizer.encode(text)
        if len(encoding.ids) <= max_tokens:
            return text
        ends = [
            end
            for (_, end), special in zip(
                encoding.offsets, encoding.special_tokens_mask, strict=True
            )
            if not special
        ]
        kept = max(1, max_tokens - (len(encoding.ids) - len(ends)))
        return text[: ends[min(kept, len(ends)) - 1]] if ends else text


def _is_alone(text: str, place: int, sizes: Sequence[int]) -> bool:
    """Whether a letter and those beside it in the word are each a token of their own."""
    beside = [each for each in (place - 1, place + 1) if 0 <= each < len(text)]
    beside = [sizes[each] for each in beside if text[each].isalpha()]
    is_wide = east_asian_width(text[place]) in "FW"
    return not is_wide and bool(beside) and max(sizes[place], *beside) == 1


def similar_lengths(lengths: Sequence[int]) -> list[list[int]]:
    """Divide texts into groups with little padding: their rows by ascending length."""
    groups: list[list[int]] = []
    tokens = 0
    for row in sorted(range(len(lengths)), key=lengths.__getitem__):
        padded = (len(groups[-1]) + 1) * lengths[row] if groups else 0
        tokens += lengths[row]
        if not groups or padded > _MOST_TOKENS or padded - tokens > _TOKENS_OF_A_CALL:
            groups.append([])
            tokens = lengths[row]
        groups[-1].append(row)
    return groups


def _words(encoding: Encoding) -> list[bool]:
    """Return for each token whether it is a word piece of the user's text."""
    return [
        not special and token.strip(_SPACE_MARKS) != ""
        for token, special in zip(encoding.tokens, encoding.special_tokens_mask, strict=True)
    ]


def _without_spaces(text: str, start: int, end: int) -> tuple[int, int]:
    """Narrow a span to its characters: sentence pieces include the space before a word."""
    piece = text[start:end]
    left = start + len(piece) - len(piece.lstrip())
    return left, max(left, end - len(piece) + len(piece.rstrip()))

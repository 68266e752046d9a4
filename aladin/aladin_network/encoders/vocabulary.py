"""Tokenizers of text encoders that start at random: vocabularies learnt from captions."""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Iterable

from tokenizers import Tokenizer
from tokenizers.models import WordLevel, WordPiece
from tokenizers.normalizers import BertNormalizer
from tokenizers.pre_tokenizers import BertPreTokenizer
from tokenizers.processors import TemplateProcessing

from aladin_network.config import TextEncoderConfig
from aladin_network.errors import ConfigError

SPECIAL_TOKENS = ("[PAD]", "[UNK]", "[CLS]", "[SEP]")
WORD_SPECIAL_TOKENS = ("<pad>", "<start>", "<end>", "<unk>")


def random_start(
    config: TextEncoderConfig, tokenizer: Tokenizer | None
) -> tuple[TextEncoderConfig, Tokenizer]:
    """Complete the configuration of a random start: the tokenizer sets the vocabulary size."""
    if tokenizer is None:
        raise ConfigError("text_encoder: a random start needs a trained tokenizer")
    architecture = dict(config.architecture or {})
    architecture.setdefault("vocab_size", tokenizer.get_vocab_size())
    return dataclasses.replace(config, architecture=architecture), tokenizer


def train_tokenizer(texts: Iterable[str], vocabulary_size: int) -> Tokenizer:
    """Train a lower-case tokenizer in BERT's layout: ``[CLS] pieces [SEP]``.

    The vocabulary holds the characters and the most frequent whole words; a rarer word is
    spelt. (The library's own trainer breaks ties at random, and a recipe must give the same
    network each time.)
    """
    words = _by_frequency(texts)
    characters = sorted({character for word in words for character in word})
    entries = [*SPECIAL_TOKENS, *characters, *(f"##{character}" for character in characters)]
    known = set(entries)
    whole = [word for word in words if word not in known]
    entries += whole[: max(0, vocabulary_size - len(entries))]
    return bert_tokenizer({entry: number for number, entry in enumerate(entries)})


def bert_tokenizer(vocabulary: dict[str, int], *, lowercase: bool = True) -> Tokenizer:
    """Build BERT's tokenizer: word pieces between [CLS] and [SEP]."""
    model = WordPiece(vocabulary, unk_token="[UNK]")  # type: ignore[call-arg]
    return _between(Tokenizer(model), "[CLS]", "[SEP]", lowercase=lowercase)


def train_word_tokenizer(texts: Iterable[str], vocabulary_size: int) -> Tokenizer:
    """Train a lower-case tokenizer of whole words: ``<start> words <end>``.

    A word that is not among the most frequent ones becomes ``<unk>``, as in the vocabularies
    of the recurrent encoders of this field (VSE++, DBL).
    """
    room = max(0, vocabulary_size - len(WORD_SPECIAL_TOKENS))
    entries = [*WORD_SPECIAL_TOKENS, *_by_frequency(texts)[:room]]
    vocabulary = {entry: number for number, entry in enumerate(entries)}
    model = WordLevel(vocabulary, unk_token="<unk>")  # type: ignore[call-arg]
    return _between(Tokenizer(model), "<start>", "<end>")


def _by_frequency(texts: Iterable[str]) -> list[str]:
    """Return the words of the texts by descending frequency, then alphabetically."""
    normalizer, splitter = BertNormalizer(lowercase=True), BertPreTokenizer()
    counts = Counter(
        word
        for text in texts
        for word, _ in splitter.pre_tokenize_str(normalizer.normalize_str(text))
    )
    return sorted(counts, key=lambda word: (-counts[word], word))


def _between(tokenizer: Tokenizer, first: str, last: str, *, lowercase: bool = True) -> Tokenizer:
    """Split as the vocabulary was learnt, and add special tokens around every text."""
    tokenizer.normalizer = BertNormalizer(lowercase=lowercase)  # type: ignore[assignment]
    tokenizer.pre_tokenizer = BertPreTokenizer()  # type: ignore[assignment]
    tokenizer.post_processor = TemplateProcessing(  # type: ignore[assignment]
        single=f"{first} $A {last}",
        special_tokens=[(token, tokenizer.token_to_id(token)) for token in (first, last)],
    )
    return tokenizer

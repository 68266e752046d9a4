"""Whether a vocabulary has the words of a text's script."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from tokenizers import Tokenizer, models, normalizers, pre_tokenizers

from aladin_network.config import TextEncoderConfig
from aladin_network.encoders.tokenization import Tokenization


def word_pieces() -> Tokenizer:
    """Words of English, and of two other scripts single characters."""
    words = ["[UNK]", "a", "dog", "##s", "caf", "##e", "д", "##в", "##\u0435", "猫", "犬"]
    vocabulary = {word: number for number, word in enumerate(words)}
    made = Tokenizer(models.WordPiece(vocabulary, unk_token="[UNK]"))
    made.normalizer = normalizers.BertNormalizer(lowercase=True, strip_accents=True)
    made.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    return made


def bytes_and_words() -> Tokenizer:
    """Bytes, and one word."""
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    merges = [("d", "o"), ("do", "g"), ("Ġ", "dog")]
    pieces = [*alphabet, "do", "dog", "Ġdog"]
    made = Tokenizer(models.BPE({piece: n for n, piece in enumerate(pieces)}, merges))
    made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    return made


@pytest.mark.parametrize(
    ("made", "text", "is_known"),
    [
        (word_pieces, "a dog", True),
        (word_pieces, "Dogs, 12!", True),
        (word_pieces, "café", True),
        (word_pieces, "две", False),  # letter by letter
        (word_pieces, "д", True),  # a word of one letter
        (word_pieces, "猫犬", True),
        (word_pieces, "東京", False),  # unknown
        (word_pieces, "dogs две", True),
        (word_pieces, "a две", False),
        (word_pieces, "12!", True),
        (bytes_and_words, "dog dog", True),
        (bytes_and_words, "две", False),  # two bytes a letter
        (bytes_and_words, "猫", False),  # three
        (bytes_and_words, "dog 猫", True),
    ],
)
def test_letters_are_known_in_words_of_the_vocabulary(
    made: Callable[[], Tokenizer], text: str, is_known: bool
) -> None:
    reader = Tokenization(TextEncoderConfig(max_tokens=32), made())
    assert reader.knows_letters(text) == is_known

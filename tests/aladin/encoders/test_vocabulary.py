"""Vocabularies learnt from captions."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from tokenizers import Tokenizer

from aladin_network.encoders.vocabulary import train_tokenizer, train_word_tokenizer

CAPTIONS = ["A red circle.", "two Circles and a réd square"] * 3


def test_the_layout_of_bert() -> None:
    encoding = train_tokenizer(CAPTIONS, 500).encode("A RED circle")
    assert encoding.tokens == ["[CLS]", "a", "red", "circle", "[SEP]"]
    assert encoding.special_tokens_mask == [1, 0, 0, 0, 1]


def test_new_words_fall_into_known_pieces_and_new_letters_are_unknown() -> None:
    tokenizer = train_tokenizer(CAPTIONS, 500)
    assert "[UNK]" not in tokenizer.encode("squared").tokens
    assert tokenizer.encode("犬").tokens == ["[CLS]", "[UNK]", "[SEP]"]


def test_whole_words_by_frequency_between_start_and_end() -> None:
    tokenizer = train_word_tokenizer(["a dog", "A cat, a dog.", "a bird"], 8)
    # a four times, dog twice; of the words seen once the alphabet's first ones.
    vocabulary = tokenizer.get_vocab()
    assert sorted(vocabulary, key=vocabulary.__getitem__) == [
        "<pad>", "<start>", "<end>", "<unk>", "a", "dog", ",", "."
    ]  # fmt: skip
    encoding = tokenizer.encode("A DOG, a bird and <unk>")
    assert encoding.tokens[:6] == ["<start>", "a", "dog", ",", "a", "<unk>"]
    assert encoding.tokens[-1] == "<end>"
    assert encoding.special_tokens_mask == [1, *[0] * (len(encoding.tokens) - 2), 1]


def test_special_tokens_always_get_in() -> None:
    assert train_word_tokenizer(CAPTIONS, 1).get_vocab_size() == 4
    assert train_word_tokenizer(CAPTIONS, 6).get_vocab_size() == 6


@pytest.mark.parametrize("train", [train_tokenizer, train_word_tokenizer])
def test_the_same_captions_give_the_same_bounded_vocabulary(
    train: Callable[[list[str], int], Tokenizer],
) -> None:
    tokenizer = train(CAPTIONS * 10, 40)
    assert tokenizer.get_vocab_size() <= 40
    assert tokenizer.to_str() == train(CAPTIONS * 10, 40).to_str()

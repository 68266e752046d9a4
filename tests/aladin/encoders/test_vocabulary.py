"""Vocabularies learnt from captions."""

from __future__ import annotations

from aladin.encoders.vocabulary import train_tokenizer

CAPTIONS = ["A red circle.", "two Circles and a réd square"] * 3


def test_the_layout_of_bert() -> None:
    encoding = train_tokenizer(CAPTIONS, 500).encode("A RED circle")
    assert encoding.tokens == ["[CLS]", "a", "red", "circle", "[SEP]"]
    assert encoding.special_tokens_mask == [1, 0, 0, 0, 1]


def test_the_same_captions_give_the_same_vocabulary() -> None:
    assert train_tokenizer(CAPTIONS, 60).to_str() == train_tokenizer(CAPTIONS, 60).to_str()


def test_the_size_is_a_bound() -> None:
    assert train_tokenizer(CAPTIONS * 10, 40).get_vocab_size() <= 40


def test_new_words_fall_into_known_pieces_and_new_letters_are_unknown() -> None:
    tokenizer = train_tokenizer(CAPTIONS, 500)
    assert "[UNK]" not in tokenizer.encode("squared").tokens
    assert tokenizer.encode("犬").tokens == ["[CLS]", "[UNK]", "[SEP]"]

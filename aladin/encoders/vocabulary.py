"""A word-piece vocabulary learnt from captions, for text encoders that start at random."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from tokenizers import Tokenizer
from tokenizers.models import WordPiece
from tokenizers.normalizers import BertNormalizer
from tokenizers.pre_tokenizers import BertPreTokenizer
from tokenizers.processors import TemplateProcessing

SPECIAL_TOKENS = ("[PAD]", "[UNK]", "[CLS]", "[SEP]")


def train_tokenizer(texts: Iterable[str], vocabulary_size: int) -> Tokenizer:
    """Learn a lower-case tokenizer in BERT's layout: ``[CLS] pieces [SEP]``.

    The vocabulary holds the characters and the most frequent whole words; a rarer word is
    spelt. (The library's own trainer breaks ties at random, and a recipe must give the same
    network each time.)

    Args:
        texts: the training captions.
        vocabulary_size: upper bound, special tokens included; characters always get in.
    """
    normalizer, splitter = BertNormalizer(lowercase=True), BertPreTokenizer()
    words = Counter(
        word
        for text in texts
        for word, _ in splitter.pre_tokenize_str(normalizer.normalize_str(text))
    )
    characters = sorted({character for word in words for character in word})
    entries = [*SPECIAL_TOKENS, *characters, *(f"##{character}" for character in characters)]
    by_frequency = sorted(words, key=lambda word: (-words[word], word))
    known = set(entries)
    whole = [word for word in by_frequency if word not in known]
    entries += whole[: max(0, vocabulary_size - len(entries))]
    vocabulary = {entry: number for number, entry in enumerate(entries)}

    tokenizer = Tokenizer(WordPiece(vocabulary, unk_token="[UNK]"))  # type: ignore[call-arg]
    tokenizer.normalizer = normalizer  # type: ignore[assignment]
    tokenizer.pre_tokenizer = splitter  # type: ignore[assignment]
    tokenizer.post_processor = TemplateProcessing(  # type: ignore[assignment]
        single="[CLS] $A [SEP]",
        special_tokens=[(token, vocabulary[token]) for token in ("[CLS]", "[SEP]")],
    )
    return tokenizer

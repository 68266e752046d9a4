"""A word-piece vocabulary learnt from captions, for text encoders that start at random."""

from __future__ import annotations

from collections.abc import Iterable

from tokenizers import Tokenizer
from tokenizers.models import WordPiece
from tokenizers.normalizers import BertNormalizer
from tokenizers.pre_tokenizers import BertPreTokenizer
from tokenizers.processors import TemplateProcessing
from tokenizers.trainers import WordPieceTrainer

SPECIAL_TOKENS = ("[PAD]", "[UNK]", "[CLS]", "[SEP]")


def train_tokenizer(texts: Iterable[str], vocabulary_size: int) -> Tokenizer:
    """Learn a lower-case word-piece tokenizer in BERT's layout: ``[CLS] pieces [SEP]``.

    Args:
        texts: the training captions.
        vocabulary_size: upper bound, special tokens included.
    """
    tokenizer = Tokenizer(WordPiece(unk_token="[UNK]"))  # type: ignore[call-arg]
    tokenizer.normalizer = BertNormalizer(lowercase=True)  # type: ignore[assignment]
    tokenizer.pre_tokenizer = BertPreTokenizer()  # type: ignore[assignment]
    trainer = WordPieceTrainer(
        vocab_size=vocabulary_size, special_tokens=list(SPECIAL_TOKENS), show_progress=False
    )
    tokenizer.train_from_iterator(texts, trainer)
    tokenizer.post_processor = TemplateProcessing(  # type: ignore[assignment]
        single="[CLS] $A [SEP]",
        special_tokens=[(token, tokenizer.token_to_id(token)) for token in ("[CLS]", "[SEP]")],
    )
    return tokenizer

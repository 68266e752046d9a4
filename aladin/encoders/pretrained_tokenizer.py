"""The tokenizer that comes with a pretrained text encoder."""

from __future__ import annotations

from typing import Any, NamedTuple

from tokenizers import Tokenizer
from transformers import AutoTokenizer, PreTrainedTokenizerFast

from aladin.encoders.transformers_model import LOAD_ERRORS, quiet
from aladin.errors import CheckpointError
from aladin.remote_code import load_failure


class PretrainedTokenizer(NamedTuple):
    """A tokenizer of the tokenizers library.

    Attributes:
        tokenizer: adds its own special tokens.
        pad_id: of padding; 0 where it has none.
    """

    tokenizer: Tokenizer
    pad_id: int


def load_tokenizer(source: str) -> PretrainedTokenizer:
    """Load the tokenizer of a local folder or hub name.

    Raises:
        CheckpointError: there is none, or only one that the tokenizers library does not run: a
            checkpoint takes its tokenizer with it, and has to run without other packages.
    """
    try:
        with quiet():
            wrapper = _fast_tokenizer(source)
        tokenizer = Tokenizer.from_str(wrapper.backend_tokenizer.to_str())
    except LOAD_ERRORS as error:
        raise CheckpointError(
            f"{source}: cannot load a tokenizer ({_first_line(error)})"
        ) from error
    # Where its files are missing, transformers makes up one that knows special tokens only.
    if tokenizer.get_vocab_size() <= len(wrapper.all_special_ids):
        raise CheckpointError(f"{source}: cannot load a tokenizer (it has no vocabulary)")
    return PretrainedTokenizer(tokenizer, int(wrapper.pad_token_id or 0))


def _fast_tokenizer(source: str) -> Any:
    """Load the source's own kind of tokenizer, or else its ``tokenizer.json`` as it stands.

    Some kinds, SigLIP's among them, run in Python or need another package, although their
    ``tokenizer.json`` says all.
    """
    reason = "its kind runs in Python only"
    try:
        own = AutoTokenizer.from_pretrained(source, trust_remote_code=False)
        if hasattr(own, "backend_tokenizer"):
            return own
    except ImportError as error:
        reason = _first_line(error)
    try:
        return PreTrainedTokenizerFast.from_pretrained(source, trust_remote_code=False)
    except LOAD_ERRORS as error:
        raise ValueError(f"{reason}, and there is no tokenizer.json") from error


def _first_line(error: Exception) -> str:
    return load_failure(error).strip().partition("\n")[0]

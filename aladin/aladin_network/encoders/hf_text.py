"""The `hf` text encoder: any text tower of the transformers library, with its tokenizer."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple, cast

import torch
from tokenizers import Tokenizer
from torch import nn
from transformers import AutoTokenizer, PreTrainedTokenizerFast
from transformers.configuration_utils import PretrainedConfig
from transformers.utils.hub import cached_file

from aladin_network.config import TextEncoderConfig
from aladin_network.encoders.base import (
    Features,
    TextBatch,
    TextEncoder,
    concatenate_features,
    with_front,
)
from aladin_network.encoders.cleaning import clean_texts, cleaning
from aladin_network.encoders.pretrained import (
    build_tower,
    end_token,
    load_tower,
    padded_length,
    pool,
)
from aladin_network.encoders.tokenization import similar_lengths
from aladin_network.encoders.transformers_model import (
    LOAD_ERRORS,
    load_failure,
    loading,
)
from aladin_network.encoders.vocabulary import (
    random_start,
    train_tokenizer,
)
from aladin_network.errors import CheckpointError, ConfigError
from aladin_network.files import read_json


class PretrainedTokenizer(NamedTuple):
    """A tokenizer of the tokenizers library, and the id of its padding (0 without one)."""

    tokenizer: Tokenizer
    pad_id: int


def load_tokenizer(source: str) -> PretrainedTokenizer:
    """Load the tokenizer of a local folder or hub name.

    Only one of the tokenizers library: a checkpoint holds it, and must run without other packages.
    """
    with loading(source, "load a tokenizer"):
        wrapper = _fast_tokenizer(source)
        tokenizer = Tokenizer.from_str(wrapper.backend_tokenizer.to_str())
        clean_texts(tokenizer, cleaning(partial(_settings, source)))
    # If its files are missing, transformers creates one that knows special tokens only.
    if tokenizer.get_vocab_size() <= len(wrapper.all_special_ids):
        raise CheckpointError(f"{source}: cannot load a tokenizer (it has no vocabulary)")
    return PretrainedTokenizer(tokenizer, int(wrapper.pad_token_id or 0))


def _fast_tokenizer(source: str) -> Any:
    """Load the source's own kind of tokenizer, else its plain ``tokenizer.json``.

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


def _settings(source: str, name: str) -> dict[str, Any]:
    """Read a JSON file of a folder or hub name; nothing if it is missing or is no object."""
    path = cached_file(
        source,
        name,
        _raise_exceptions_for_gated_repo=False,
        _raise_exceptions_for_missing_entries=False,
        _raise_exceptions_for_connection_errors=False,
    )
    try:
        data: object = read_json(Path(path)) if path else None
    except ValueError:
        return {}
    return cast(dict[str, Any], data) if isinstance(data, dict) else {}


def _first_line(error: Exception) -> str:
    return load_failure(error).strip().partition("\n")[0]


class HFTextEncoder(TextEncoder):
    """Word-piece states of a text transformer, with its tokenizer.

    The states are the last layer's, after the network's last norm if it has one. With ``pooled``,
    the vector that the tower's own similarity compares comes in front.
    """

    def __init__(
        self, config: TextEncoderConfig, tokenizer: Tokenizer, model: nn.Module | None = None
    ) -> None:
        super().__init__(config, tokenizer)
        if config.architecture is None:
            raise ConfigError("text_encoder: give a source or an architecture")
        if model is None:
            model = build_tower(config.architecture, pooled=config.pooled)
        self.model = model
        self.freeze()
        settings = cast(PretrainedConfig, self.model.config)
        self.dim = int(settings.hidden_size)
        self._check_vocabulary(int(settings.vocab_size))

    @classmethod
    def from_source(cls, config: TextEncoderConfig, tokenizer: Tokenizer | None) -> HFTextEncoder:
        """Load the pretrained weights and the tokenizer that ``config.source`` names."""
        if config.source is None:
            return cls(*random_start(config, tokenizer))
        model, architecture, projection = load_tower(config.source, "text", pooled=config.pooled)
        loaded = load_tokenizer(config.source)
        config = dataclasses.replace(
            config,
            architecture=architecture,
            pad_id=loaded.pad_id,
            pad_to=padded_length(model),
        )
        _check_length(config, model)
        encoder = cls(config, loaded.tokenizer, model)
        encoder.projection = projection
        if config.pooled:
            encoder.check_end_token()
        return encoder

    @staticmethod
    def learn_tokenizer(texts: Iterable[str], vocabulary_size: int) -> Tokenizer:
        """Train a word-piece tokenizer; see `train_tokenizer`."""
        return train_tokenizer(texts, vocabulary_size)

    def forward(self, batch: TextBatch) -> Features:
        """Encode tokenised texts.

        Where the network is trained on a processor, texts of similar length go through it together:
        padding takes as long as words there, and half of a batch of captions is padding.
        """
        trains = self.training and not self.frozen and not torch.compiler.is_compiling()
        if not trains or self.config.pad_to is not None or batch.ids.device.type != "cpu":
            return self._encode(batch)
        lengths: list[int] = batch.mask.sum(dim=1).tolist()
        groups = similar_lengths(lengths)
        parts = [
            self._encode(TextBatch(*(values[rows, : lengths[rows[-1]]] for values in batch)))
            for rows in groups
        ]
        places = torch.tensor([row for rows in groups for row in rows]).argsort()
        return Features(*(values[places] for values in concatenate_features(parts)))

    def _encode(self, batch: TextBatch) -> Features:
        attended = batch.mask.long() if self.config.pad_to is None else None
        with torch.set_grad_enabled(torch.is_grad_enabled() and not self.frozen):
            output = self.model(input_ids=batch.ids, attention_mask=attended)
            pooled = pool(self.model, output)[1] if self.config.pooled else None
        features = Features(output.last_hidden_state, batch.mask, batch.content)
        if not torch.compiler.is_compiling():  # an exported graph cannot depend on values
            longest = int(batch.mask.sum(dim=1).max())  # no head reads more
            features = Features(*(values[:, :longest] for values in features))
        return features if pooled is None else with_front(features, pooled)

    def check_end_token(self) -> None:
        """Check that the network finds the token where it pools; else all texts would be equal."""
        end = end_token(self.model)
        last = self.tokenizer.encode("a").ids[-1]
        if end is not None and last != end:
            raise CheckpointError(
                f"{self.config.source}: its network pools at token {end}, its tokenizer ends "
                f"texts with {last}"
            )


def _check_length(config: TextEncoderConfig, model: nn.Module) -> None:
    limit = longest_text(model)
    if limit is not None and config.max_tokens > limit:
        raise ConfigError(
            f"text_encoder: max_tokens is {config.max_tokens}, {config.source} takes {limit}"
        )


def longest_text(model: nn.Module) -> int | None:
    """Return how many tokens a network has positions for, or None if unknown."""
    settings = cast(PretrainedConfig, model.config)
    positions = getattr(settings, "max_position_embeddings", None)
    if positions is None:
        return None
    # RoBERTa and its relatives count positions from behind the padding id.
    embeddings = getattr(model, "embeddings", None)
    table = getattr(embeddings, "position_embeddings", None)
    padding = getattr(table, "padding_idx", None)
    return int(positions) - (0 if padding is None else int(padding) + 1)

"""Settings of the `colbert` encoders: how queries and documents are tokenised and projected."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Bool, Float, Int
from tokenizers import Tokenizer
from torch import Tensor, nn

from aladin_network.config import STRICT
from aladin_network.errors import ConfigError

ACTIVATIONS: dict[str, type[nn.Module]] = {
    each.__name__: each for each in (nn.Identity, nn.Tanh, nn.ReLU, nn.GELU, nn.SiLU, nn.Sigmoid)
}


@dataclass(frozen=True, kw_only=True)
class Expansion:
    """Extension of short queries by tokens that have no text (query augmentation).

    Attributes:
        length: Number of tokens to which shorter queries are extended.
        token: Id of the token that is appended.
        attend: Whether other tokens attend to the appended ones.
    """

    length: int
    token: int
    attend: bool = False


@dataclass(frozen=True, kw_only=True)
class QueryRole:
    """How queries are encoded; the longest one is `TextEncoderConfig.max_tokens`.

    Attributes:
        prefix: Characters before a text.
        expansion: Extension of short queries, or None for none.
        skipped: Ids of tokens that are not compared.
    """

    prefix: str = ""
    expansion: Expansion | None = None
    skipped: tuple[int, ...] = ()


@dataclass(frozen=True, kw_only=True)
class DocumentRole:
    """How documents are encoded.

    Attributes:
        prefix: Characters before a text.
        max_tokens: Longest document in tokens, prefix and special tokens included; the rest of a
            longer one is not read.
        skipped: Ids of tokens that are not compared.
    """

    __pydantic_config__ = STRICT

    prefix: str = ""
    max_tokens: int = 512
    skipped: tuple[int, ...] = ()


@dataclass(frozen=True, kw_only=True)
class ProjectionLayer:
    """One linear map after the network.

    Attributes:
        in_dim: Size of its input.
        out_dim: Size of its output.
        bias: Whether a vector is added.
        activation: Name of the function that follows, a key of `ACTIVATIONS`.
        residual: Whether the input, mapped to the size of the output if they differ, is added.
    """

    in_dim: int
    out_dim: int
    bias: bool = False
    activation: str = "Identity"
    residual: bool = False


@dataclass(frozen=True, kw_only=True)
class ColBERTArchitecture:
    """Everything from which the text encoder is built again.

    Attributes:
        network: Configuration of the transformers library.
        projections: Linear maps after the network, in order.
        query: How queries are encoded.
    """

    __pydantic_config__ = STRICT

    network: dict[str, Any]
    projections: tuple[ProjectionLayer, ...] = ()
    query: QueryRole = QueryRole()


class TokenProjection(nn.Module):
    """A linear map of tokens with an activation, and optionally a residual connection."""

    def __init__(self, config: ProjectionLayer) -> None:
        """Build with random weights.

        Raises:
            ConfigError: If the activation is unknown.
        """
        super().__init__()
        if config.activation not in ACTIVATIONS:
            raise ConfigError(
                f"colbert: unknown activation {config.activation!r}, known are "
                f"{sorted(ACTIVATIONS)}"
            )
        self.linear = nn.Linear(config.in_dim, config.out_dim, config.bias)
        self.activation = ACTIVATIONS[config.activation]()
        self.residual: nn.Module | None = None
        if config.residual:
            same = config.in_dim == config.out_dim
            self.residual = nn.Identity() if same else _unbiased(config.in_dim, config.out_dim)

    def forward(self, states: Float[Tensor, "*batch dim"]) -> Float[Tensor, "*batch out"]:
        """Map tokens."""
        mapped = self.activation(self.linear(states))
        return mapped if self.residual is None else mapped + self.residual(states)


def _unbiased(in_dim: int, out_dim: int) -> nn.Linear:
    return nn.Linear(in_dim, out_dim, bias=False)


def compared(
    ids: Int[np.ndarray, " tokens"], skipped: Sequence[int]
) -> Bool[np.ndarray, " tokens"]:
    """Return which tokens of a text are compared.

    Args:
        ids: Ids of the tokens.
        skipped: Ids of tokens that are not compared.
    """
    return np.isin(ids, np.array(skipped, dtype=ids.dtype), invert=True)


def check_room(tokenizer: Tokenizer, prefix: str, max_tokens: int, where: str) -> None:
    """Refuse a longest length that leaves no room for a word.

    Raises:
        ConfigError: If prefix and special tokens are as long.
    """
    alone = len(tokenizer.encode(prefix).ids)
    if max_tokens <= alone:
        raise ConfigError(
            f"{where}: max_tokens is {max_tokens}, the prefix and the special tokens alone are "
            f"{alone}"
        )


def shortened_text(tokenizer: Tokenizer, prefix: str, text: str, max_tokens: int) -> str:
    """Return the beginning of a text that has, with its prefix, no more than a number of tokens.

    Args:
        tokenizer: Tokenizer that does not truncate.
        prefix: Characters before the text.
        text: Text of any length.
        max_tokens: Number of tokens with the special ones; at least one of the text is kept.
    """
    encoding = tokenizer.encode(prefix + text)
    over = len(encoding.ids) - max_tokens
    if over <= 0:
        return text
    ends = [end - len(prefix) for _, end in encoding.offsets if end > len(prefix)]
    return text[: ends[max(1, len(ends) - over) - 1]] if ends else text

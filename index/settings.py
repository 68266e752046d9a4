"""How an index is to be built."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from aladin.errors import ConfigError
from aladin.images import DEFAULT_LIMITS, ImageLimits

Target = Literal["images", "texts"]
TokenDtype = Literal["float16", "int8"]
TARGETS: tuple[Target, ...] = ("images", "texts")


@dataclass(frozen=True, kw_only=True)
class BuildSettings:
    """Options of a build.

    Attributes:
        ann: "auto" chooses by the number of items, "exact" compares with every item, anything
            else is a FAISS factory string such as "HNSW32,Flat" or "IVF4096,SQ8".
        token_dtype: how the second stage's tokens are stored; int8 with one scale a token.
        default_candidates: how many candidates a search takes unless the request says.
        shard_items: items a shard; what a killed build loses at most.
        batch_size: items that go through the network together.
        readers: threads that read and decode photos.
        device: of the network.
        limits: what a photo may cost.
        resume: go on with a build that was cut short, and leave one that is live as it is;
            without, all is done again.
    """

    ann: str = "auto"
    token_dtype: TokenDtype = "float16"
    default_candidates: int = 100
    shard_items: int = 2048
    batch_size: int = 32
    readers: int = 2
    device: str = "cpu"
    limits: ImageLimits = DEFAULT_LIMITS
    resume: bool = False

    def __post_init__(self) -> None:
        """Refuse impossible values.

        Raises:
            ConfigError: an unknown token dtype or a size below 1.
        """
        if self.token_dtype not in ("float16", "int8"):
            raise ConfigError(f"token_dtype: expected float16 or int8, got {self.token_dtype!r}")
        for name in ("default_candidates", "shard_items", "batch_size", "readers"):
            if getattr(self, name) < 1:
                raise ConfigError(f"{name}: expected at least 1, got {getattr(self, name)}")

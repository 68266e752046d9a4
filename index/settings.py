"""How an index is to be built."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from aladin.errors import ConfigError
from aladin.images import DEFAULT_LIMITS, ImageLimits
from index.items.metadata_limits import DEFAULT_METADATA_LIMITS, MetadataLimits

Target = Literal["images", "texts"]
# "4bit" and "2bit" hold a token as its nearest centroid and a quantised residual.
TokenDtype = Literal["float16", "int8", "4bit", "2bit"]
TOKEN_DTYPES: tuple[TokenDtype, ...] = ("float16", "int8", "4bit", "2bit")
OnDuplicate = Literal["error", "replace", "skip"]
TARGETS: tuple[Target, ...] = ("images", "texts")


@dataclass(frozen=True, kw_only=True)
class BuildSettings:
    """Options of a build.

    Attributes:
        ann: "auto" chooses by the number of items, the memory and the recall asked for, "exact"
            compares with every item, anything else is a FAISS factory string such as
            "HNSW32,Flat" or "IVF4096,SQ8".
        memory_budget_bytes: what the first stages of all sides may take in memory; None: as much
            as the fastest needs.
        ann_recall: share of the exact nearest items that the first stage has to find, in (0, 1].
        token_dtype: how the second stage's tokens are stored.
        filter_fields: metadata fields that get an index for filters; None: all. The others can be
            filtered by too, by reading every item.
        default_candidates: how many candidates a search takes unless the request says.
        shard_items: items a shard, rounded up to whole batches; what a killed build loses at most.
        shards: shards of a side, in place of `shard_items`; None: as many as that makes.
        part: (i, n) builds the i-th of n parts of the source, for `index.building.merge`.
        batch_size: items that go through the network together.
        readers: threads that read and decode photos.
        device: of the network.
        limits: what a photo may cost.
        metadata: limits of an item's metadata.
        resume: go on with a build that was cut short, and leave one that is live as it is;
            without, all is done again.
    """

    ann: str = "auto"
    memory_budget_bytes: int | None = None
    ann_recall: float = 0.99
    token_dtype: TokenDtype = "float16"
    filter_fields: tuple[str, ...] | None = None
    default_candidates: int = 100
    shard_items: int = 2048
    shards: int | None = None
    part: tuple[int, int] = (1, 1)
    batch_size: int = 32
    readers: int = 2
    device: str = "cpu"
    limits: ImageLimits = DEFAULT_LIMITS
    metadata: MetadataLimits = DEFAULT_METADATA_LIMITS
    resume: bool = False

    def __post_init__(self) -> None:
        """Refuse impossible values.

        Raises:
            ConfigError: an unknown token dtype, a size below 1, a part that is none or a recall
                outside of (0, 1].
        """
        if self.token_dtype not in TOKEN_DTYPES:
            known = ", ".join(TOKEN_DTYPES)
            raise ConfigError(f"token_dtype: expected one of {known}, got {self.token_dtype!r}")
        if not 0 < self.ann_recall <= 1:
            raise ConfigError(
                f"ann_recall: expected more than 0 and at most 1, got {self.ann_recall}"
            )
        if self.memory_budget_bytes is not None and self.memory_budget_bytes < 1:
            raise ConfigError(
                f"memory_budget_bytes: expected at least 1, got {self.memory_budget_bytes}"
            )
        for name in ("default_candidates", "shard_items", "shards", "batch_size", "readers"):
            value: int | None = getattr(self, name)
            if value is not None and value < 1:
                raise ConfigError(f"{name}: expected at least 1, got {value}")
        number, parts = self.part
        if not 1 <= number <= parts:
            raise ConfigError(f"part: expected a number from 1 to {parts}, got {number}")

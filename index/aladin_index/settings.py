"""Settings of builds and additions, and limits of an item's metadata."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, cast

from aladin_network.errors import ConfigError, InputError
from aladin_network.photos.decoding import DEFAULT_LIMITS, ImageLimits
from aladin_network.types import MAX_STORED_BYTES, TOKEN_DTYPES, OnDuplicate, TokenDtype

# Distinct names of metadata fields that the items of one collection may have if all get an index.
MAX_FILTER_FIELDS = 100_000


@dataclass(frozen=True, kw_only=True)
class MetadataLimits:
    """Limits of the metadata of a new item.

    Attributes:
        max_bytes: Length as JSON in UTF-8.
        max_fields: Number of fields.
        max_depth: Nesting levels of objects and lists, including the metadata object itself.
    """

    max_bytes: int = MAX_STORED_BYTES
    max_fields: int = 1000
    max_depth: int = 32


DEFAULT_METADATA_LIMITS = MetadataLimits()


def check_metadata(metadata: Mapping[str, Any], limits: MetadataLimits) -> None:
    """Reject metadata over a limit, or (TypeError, ValueError) that no JSON holds."""
    if not metadata:
        return
    if len(metadata) > limits.max_fields:
        raise InputError(
            f"metadata: expected at most {limits.max_fields} fields, got {len(metadata)}"
        )
    _check_depth(metadata, limits.max_depth)
    text = json.dumps(dict(metadata), ensure_ascii=False, allow_nan=False)
    num_bytes = len(text.encode("utf-8"))
    if num_bytes > limits.max_bytes:
        raise InputError(
            f"metadata: expected at most {limits.max_bytes} bytes of JSON, got {num_bytes}"
        )


def _check_depth(metadata: Mapping[str, Any], most: int) -> None:
    level: list[object] = [metadata]
    for _ in range(most):
        values: list[object] = []
        for each in level:
            if isinstance(each, Mapping):
                values += cast(Mapping[str, object], each).values()
            else:
                values += cast(list[object], each)
        level = [value for value in values if isinstance(value, (Mapping, list, tuple))]
        if not level:
            return
    raise InputError(f"metadata: expected at most {most} levels of objects and lists")


# `BuildSettings.ann` of an index whose searches take all items as candidates.
EXACT_ALIGN = "exact-align"


@dataclass(frozen=True, kw_only=True)
class EncodeSettings:
    """How items are read, checked and encoded, whoever writes them.

    Attributes:
        batch_size: Number of items that are encoded and written together; of the texts among them,
            those of similar length go through the network together.
        readers: Number of threads that read and decode photos ahead of the network.
        limits: Resource limits per photo.
        metadata: Limits of an item's metadata.
        exif: Whether the metadata in photos are read: see `aladin_network.photos.exif`.
        strict: Whether the first item that cannot be used ends the job.
    """

    batch_size: int = 64
    readers: int = 2
    limits: ImageLimits = DEFAULT_LIMITS
    metadata: MetadataLimits = DEFAULT_METADATA_LIMITS
    exif: bool = True
    strict: bool = False


@dataclass(frozen=True, kw_only=True)
class AddSettings(EncodeSettings):
    """Options of adding items.

    Attributes:
        on_duplicate: What to do if an id exists already, see `ChangesWriter.add`.
    """

    on_duplicate: OnDuplicate = "error"


@dataclass(frozen=True, kw_only=True)
class BuildSettings(EncodeSettings):
    """Options of a build, beside those of reading and encoding.

    Attributes:
        ann: "auto" chooses by the number of items, the memory and the recall asked for, "exact"
            compares with every item, "exact-align" does, too, and searches find the best of all
            items by the second stage unless they name a number of candidates; anything else is a
            FAISS factory string such as "HNSW32,Flat" or "IVF4096,SQ8".
        memory_budget_bytes: Memory limit of the first stages of all collections, or None for as
            much as the fastest ones need.
        ann_recall: Share of the exact nearest items that the first stage has to find, in (0, 1].
        token_dtype: Storage format of the second stage's tokens.
        filter_fields: Metadata fields that get an index for filters, or None for all. Filters on
            other fields also work, by reading every item.
        default_candidates: Default number of candidates of a search.
        shard_items: Number of items per shard, rounded up to whole batches; the most that a killed
            build loses.
        shards: Number of shards of a collection, instead of `shard_items`, or None to derive it
            from `shard_items`.
        part: (i, n) builds the i-th of n parts of the source, for `aladin_index.generations.merge`.
        device: Device of the network.
        resume: Continue an interrupted build and keep a live generation unchanged; otherwise
            everything is built again.
        replace: Whether the live generation may be replaced, where there is one. A build that is
            resumed was asked before.
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
    batch_size: int = 128
    device: str = "cpu"
    resume: bool = False
    replace: bool = True

    def __post_init__(self) -> None:
        """Reject impossible values."""
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

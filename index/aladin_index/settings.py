"""Settings of builds and additions, and limits of an item's metadata."""

from __future__ import annotations

import functools
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any, cast, get_type_hints

from annotated_types import Ge
from pydantic import Field

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


@dataclass(frozen=True, kw_only=True)
class EncodeSettings:
    """How items are read, checked and encoded, whoever writes them.

    Bounds and meaning stand with each option's type, from which the command line makes its flags.
    """

    batch_size: Annotated[
        int, Ge(1), Field(description="Items that are encoded and written together.")
    ] = 64  # of the texts among them, those of similar length go through the network together
    readers: Annotated[
        int,
        Ge(1),
        Field(description="Threads, or for a card processes, that read and decode photos."),
    ] = 2
    limits: ImageLimits = DEFAULT_LIMITS
    metadata: MetadataLimits = DEFAULT_METADATA_LIMITS
    exif: Annotated[
        bool,
        Field(
            description="Read what a photo, and other programs' files beside it, tell into its"
            " metadata: titles, people, dates, places. Whoever may search can see them."
        ),
    ] = True
    strict: Annotated[
        bool, Field(description="End at the first item that cannot be used, and skip none.")
    ] = False

    def __post_init__(self) -> None:
        for name, least in _least_values(type(self)).items():
            value: int | None = getattr(self, name)
            if value is not None and value < least:
                raise ConfigError(f"{name}: expected at least {least}, got {value}")


@functools.cache
def _least_values(settings: type[EncodeSettings]) -> dict[str, int]:
    return {
        name: cast(int, note.ge)
        for name, hint in get_type_hints(settings, include_extras=True).items()
        for note in getattr(hint, "__metadata__", ())
        if isinstance(note, Ge)
    }


@dataclass(frozen=True, kw_only=True)
class AddSettings(EncodeSettings):
    """Options of adding items; `on_duplicate` is that of `ChangesWriter.add`."""

    on_duplicate: OnDuplicate = "error"


@dataclass(frozen=True, kw_only=True)
class BuildSettings(EncodeSettings):
    """Options of a build, beside those of reading and encoding."""

    ann: Annotated[
        str,
        Field(
            description="First stage: chosen by size, memory and recall; exhaustive; exhaustive,"
            " and searches take all items as candidates of the second stage; or a FAISS factory"
            " string."  # such as "HNSW32,Flat" or "IVF4096,SQ8"
        ),
    ] = "auto"
    memory_budget_bytes: Annotated[
        int | None,
        Ge(1),
        Field(description="Memory that the first stages may take, e.g. 8GiB; for --ann auto."),
    ] = None
    ann_recall: Annotated[
        float,
        Field(description="Share of the exact nearest items that the first stage has to find."),
    ] = 0.99
    token_dtype: Annotated[
        TokenDtype, Field(description="Stored form of the second stage's tokens.")
    ] = "float16"
    filter_fields: Annotated[
        tuple[str, ...] | None,
        Field(description="Metadata fields to index for filters. [default: all]"),
    ] = None  # filters on other fields also work, by reading every item
    default_candidates: Annotated[
        int, Ge(1), Field(description="Candidates of a search that names no number.")
    ] = 100
    # Rounded up to whole batches; the most that a killed build loses.
    shard_items: Annotated[int, Ge(1), Field(description="Items of a shard.")] = 2048
    shards: Annotated[
        int | None,
        Ge(1),
        Field(
            description="Pieces in which the work is saved: after a kill, at most one is done"
            " again. The index is the same for any number. [default: one for about 2,048 items]"
        ),
    ] = None
    part: Annotated[
        tuple[int, int],
        Field(
            description="Build only the I-th of N parts of the source, I from 1, e.g. one on each"
            " machine; `aladin index merge` merges the parts."
        ),
    ] = (1, 1)
    batch_size: Annotated[
        int, Ge(1), Field(description="Items that are encoded and written together.")
    ] = 128
    device: Annotated[
        str, Field(description="Where the network runs and the first stage is built.")
    ] = "cpu"
    # Otherwise everything is built again.
    resume: Annotated[
        bool,
        Field(description="Continue the interrupted build of the same items in --out."),
    ] = False
    # A build that is resumed was asked before.
    replace: Annotated[
        bool,
        Field(
            description="Replace the index in --out by a new generation, and go back with `aladin"
            " index rollback`. The index of a library is never replaced."
        ),
    ] = True

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.token_dtype not in TOKEN_DTYPES:
            known = ", ".join(TOKEN_DTYPES)
            raise ConfigError(f"token_dtype: expected one of {known}, got {self.token_dtype!r}")
        if not 0 < self.ann_recall <= 1:
            raise ConfigError(
                f"ann_recall: expected more than 0 and at most 1, got {self.ann_recall}"
            )
        number, parts = self.part
        if not 1 <= number <= parts:
            raise ConfigError(f"part: expected a number from 1 to {parts}, got {number}")


# `BuildSettings.ann` of an index whose searches take all items as candidates.
EXACT_ALIGN = "exact-align"

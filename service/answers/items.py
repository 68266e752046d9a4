"""What the HTTP service answers about items: looked up, added, deleted."""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel, ConfigDict, Field


class Item(BaseModel):
    """An item as the user described it."""

    model_config = ConfigDict(from_attributes=True)

    id: str
    uri: str | None
    text: str | None
    metadata: dict[str, Any]


class AddTookMs(BaseModel):
    """Milliseconds by part."""

    decode: float
    encode: float
    write: float = Field(description="Until all was on the disk, waiting for others included.")
    total: float


class Added(BaseModel):
    """What became of the items of a request; they are on the disk, and found from now on."""

    added: list[str] = Field(description="Ids that were not there.")
    replaced: list[str] = Field(description="Ids whose items gave way to the new ones.")
    skipped: list[str] = Field(description="Ids that were there; their items stay.")
    generation: int = Field(description="Of the index, that was added to.")
    took_ms: AddTookMs


class Deleted(BaseModel):
    """The item is gone, on the disk too, and found no more."""

    deleted: str = Field(description="Its id.")
    generation: int = Field(description="Of the index, that it was removed from.")

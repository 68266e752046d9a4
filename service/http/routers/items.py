"""What the index knows of an item."""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter
from pydantic import BaseModel, ConfigDict

from service.http.errors import error_docs
from service.http.state import Engine, Service
from service.queries import Target

router = APIRouter(prefix="/v1/items", tags=["items"])


class Item(BaseModel):
    """An item as the user described it."""

    model_config = ConfigDict(from_attributes=True)

    id: str
    uri: str | None
    text: str | None
    metadata: dict[str, Any]


@router.get(
    "/{target}/{item_id:path}",
    responses=error_docs(404, 422, 429, 503),
)
async def get_item(target: Target, item_id: str, engine: Engine, service: Service) -> Item:
    """Return one item; an id may hold slashes, and # and ? written as %23 and %3F."""
    return Item.model_validate(await service.pool.run(engine.item, target, item_id))

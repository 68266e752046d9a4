"""The Model Context Protocol over HTTP: the tools of agents, see `aladin_service.mcp`."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from importlib.util import find_spec
from typing import TYPE_CHECKING, cast

from fastapi import APIRouter, FastAPI, Request, Response
from starlette.exceptions import HTTPException
from starlette.types import Message

from aladin_service.http.errors import JsonTooLargeError
from aladin_service.http.served_index import ServedIndex, charged
from aladin_service.http.shared_state import Service, ServiceState, until_disconnect

if TYPE_CHECKING:
    from aladin_service.mcp.server import HttpServer

router = APIRouter()


@asynccontextmanager
async def agents_served(app: FastAPI, service: ServiceState) -> AsyncGenerator[None]:
    """Answer requests of agents, if the settings allow it and the extra is installed."""
    app.state.mcp = None
    if not service.settings.mcp or find_spec("mcp") is None:
        yield
        return
    from aladin_service.mcp.server import HttpServer

    server = HttpServer(ServedIndex(service), service.settings.max_json_bytes)
    await server.start()
    app.state.mcp = server
    try:
        yield
    finally:
        await server.stop()


# Not in the document: the protocol describes its tools itself. Without sessions there is nothing to
# GET or to DELETE.
@router.post("/mcp", include_in_schema=False)
async def answer_agent(request: Request, service: Service) -> Response:
    """Answer one message of an agent."""
    server = cast("HttpServer | None", request.app.state.mcp)
    if server is None:
        raise HTTPException(404)
    body = await request.body()
    most = service.settings.max_json_bytes
    if len(body) > most:
        raise JsonTooLargeError(f"{most} bytes of JSON")
    with charged(request):
        messages = await until_disconnect(request, server.answer(request.scope, body))
    return _response(messages)


def _response(messages: list[Message]) -> Response:
    start, *rest = messages
    response = Response(
        b"".join(message.get("body", b"") for message in rest), status_code=start["status"]
    )
    response.raw_headers = list(start.get("headers", ()))
    return response

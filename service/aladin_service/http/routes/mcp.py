"""The Model Context Protocol over HTTP: the tools of agents, see `aladin_service.mcp`.

The protocol's SDK takes longer to import than all the rest of the service, and 60 MB of memory: the
first request of an agent imports it.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from importlib.util import find_spec
from typing import TYPE_CHECKING, cast

from fastapi import APIRouter, FastAPI, Request, Response
from starlette.exceptions import HTTPException
from starlette.types import Message

from aladin_service.http.errors import JsonTooLargeError
from aladin_service.http.openapi import operation_id
from aladin_service.http.shared_state import Service, ServiceState, until_disconnect

if TYPE_CHECKING:
    from aladin_service.http.agents import AgentServer

router = APIRouter(generate_unique_id_function=operation_id)


# Not in the document: the protocol describes its tools itself. Without sessions there is nothing to
# GET or to DELETE.
@router.post("/mcp", include_in_schema=False)
async def answer_agent(request: Request, service: Service) -> Response:
    """Answer one message of an agent."""
    agents = cast(_Agents | None, request.app.state.agents)
    if agents is None:
        raise HTTPException(404, "Not Found")
    body = await request.body()
    most = service.settings.max_json_bytes
    if len(body) > most:
        raise JsonTooLargeError(f"{most} bytes of JSON")
    return _response(await until_disconnect(request, agents.answer(request, body)))


@asynccontextmanager
async def agents_answered(app: FastAPI, service: ServiceState) -> AsyncGenerator[None]:
    """Answer requests of agents, if the settings allow it and the extra is installed.

    Args:
        app: Application of the route.
        service: State of the application.
    """
    app.state.agents = None
    if not service.settings.mcp or find_spec("mcp") is None:
        yield
        return
    agents = app.state.agents = _Agents(service)
    try:
        yield
    finally:
        app.state.agents = None
        await agents.stop()


class _Agents:
    """The server of agents, once there is one to answer."""

    def __init__(self, service: ServiceState) -> None:
        self._service = service
        self._server: AgentServer | None = None
        self._starting = asyncio.Lock()

    async def answer(self, request: Request, body: bytes) -> list[Message]:
        """Answer one request; see `AgentServer`."""
        async with self._starting:
            if self._server is None:
                server = await asyncio.to_thread(_make_server, self._service)
                await server.start()
                self._server = server
        return await self._server.answer(request, body)

    async def stop(self) -> None:
        """Cancel the requests that are being answered."""
        if self._server is not None:
            await self._server.stop()


def _make_server(service: ServiceState) -> AgentServer:
    from aladin_service.http.agents import AgentServer

    return AgentServer(service)


def _response(messages: list[Message]) -> Response:
    start, *rest = messages
    body = b"".join(message.get("body", b"") for message in rest)
    response = Response(body, status_code=start["status"])
    response.raw_headers = list(start.get("headers", ()))
    return response

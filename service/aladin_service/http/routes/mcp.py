"""The Model Context Protocol over HTTP: the tools of agents, see `aladin_service.mcp`."""

from __future__ import annotations

from typing import cast

from fastapi import Request, Response
from starlette.exceptions import HTTPException
from starlette.types import Message

from aladin_service.http.agents import AgentServer
from aladin_service.http.bodies import check_values
from aladin_service.http.errors import JsonTooLargeError
from aladin_service.http.router import ServiceRouter
from aladin_service.http.shared_state import Service, until_disconnect

router = ServiceRouter()

# Of which the protocol's SDK makes objects, on the event loop. Half of them is what the largest
# filter has, with all parts and examples.
_MAX_VALUES = 10_000


# Not in the document: the protocol describes its tools itself. Without sessions there is nothing to
# GET or to DELETE.
@router.post("/mcp", include_in_schema=False)
async def answer_agent(request: Request, service: Service) -> Response:
    """Answer one message of an agent."""
    agents = cast(AgentServer | None, request.app.state.agents)
    if agents is None:
        raise HTTPException(404, "Not Found")
    body = await request.body()
    most = service.settings.max_json_bytes
    if len(body) > most:
        raise JsonTooLargeError(f"{most} bytes of JSON")
    check_values(body, _MAX_VALUES)
    return _response(await until_disconnect(request, agents.answer(request, body)))


def _response(messages: list[Message]) -> Response:
    start, *rest = messages
    body = b"".join(message.get("body", b"") for message in rest)
    response = Response(body, status_code=start["status"])
    response.raw_headers = list(start.get("headers", ()))
    return response

"""The tools behind the protocol: the official SDK's server, over stdio and over HTTP requests.

This is the only module that imports the SDK, which the extra ``aladin-search[mcp]`` installs.
"""

from __future__ import annotations

import asyncio
import base64
import logging
from functools import cache
from importlib.metadata import version
from typing import Any

import mcp_types as types
from mcp.server.context import ServerRequestContext
from mcp.server.lowlevel import Server
from mcp.server.stdio import stdio_server
from mcp.server.streamable_http_manager import StreamableHTTPSessionManager
from mcp.server.transport_security import TransportSecuritySettings
from mcp.shared.exceptions import MCPError
from pydantic import BaseModel, ValidationError
from pydantic.json_schema import GenerateJsonSchema
from starlette.types import Message, Scope

from aladin_service.client_errors import ClientError
from aladin_service.failures import describe_invalid
from aladin_service.mcp.access import IndexAccess
from aladin_service.mcp.tools import BY_NAME, INSTRUCTIONS, TOOLS, Tool, ToolAnswer

_LOG = logging.getLogger(__name__)

# All tools only read, and only this index.
_ANNOTATIONS = types.ToolAnnotations(
    read_only_hint=True, destructive_hint=False, idempotent_hint=True, open_world_hint=False
)
# Clients ask for the tools when they start; they would rather wait a little for all of them.
_LIST_TIMEOUT_S = 10.0


class _PlainSchema(GenerateJsonSchema):
    """Schemas without titles, which repeat the names of the fields."""

    def field_title_should_be_set(self, schema: object) -> bool:
        """Return False for every field."""
        del schema
        return False


def make_server(access: IndexAccess) -> Server[Any]:
    """Make the server of an index.

    Args:
        access: Access to the index.
    """

    async def list_tools(
        context: ServerRequestContext[Any], params: types.PaginatedRequestParams | None
    ) -> types.ListToolsResult:
        del context, params
        offered = await _offered(access)
        return types.ListToolsResult(tools=[_described(tool) for tool in offered])

    async def call_tool(
        context: ServerRequestContext[Any], params: types.CallToolRequestParams
    ) -> types.CallToolResult:
        del context
        tool = BY_NAME.get(params.name)
        if tool is None:
            known = ", ".join(BY_NAME)
            raise MCPError(types.INVALID_PARAMS, f"unknown tool {params.name!r}; there are {known}")
        return await _call(tool, access, params.arguments or {})

    return Server(
        "aladin-search",
        version=version("aladin-search"),
        title="ALADIN photo search",
        instructions=INSTRUCTIONS,
        # Without it, the SDK would list the tools, and so describe the index, before every call.
        get_tool_input_schema=_input_schema,
        on_list_tools=list_tools,
        on_call_tool=call_tool,
    )


async def serve_stdio(access: IndexAccess) -> None:
    """Serve one client over stdin and stdout until it closes stdin.

    Args:
        access: Access to the index.
    """
    server = make_server(access)
    async with stdio_server() as (read, write):
        await server.run(read, write, server.create_initialization_options())


class HttpServer:
    """Answers the protocol's HTTP requests, each on its own: there are no sessions.

    So any process may answer any request. An answer is one JSON document, never a stream.
    """

    def __init__(self, access: IndexAccess, max_body_bytes: int) -> None:
        """Create the server without starting it.

        Args:
            access: Access to the index.
            max_body_bytes: Maximum size of a request's body.
        """
        self._manager = StreamableHTTPSessionManager(
            make_server(access),
            json_response=True,
            stateless=True,
            max_request_body_size=max_body_bytes,
            # The service itself checks hosts and origins, with its own settings.
            security_settings=TransportSecuritySettings(enable_dns_rebinding_protection=False),
        )
        self._stopping = asyncio.Event()
        self._running: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Accept requests from now on."""
        started = asyncio.Event()
        # In a task of its own, which is the one that has to end what it begins.
        self._running = asyncio.create_task(self._run(started))
        await started.wait()

    async def stop(self) -> None:
        """Cancel the requests that are being answered."""
        self._stopping.set()
        if self._running is not None:
            await self._running

    async def answer(self, scope: Scope, body: bytes) -> list[Message]:
        """Answer one request; cancelling the call cancels the tool.

        Args:
            scope: Scope of the request.
            body: Its whole body.

        Returns:
            The messages of the answer.
        """
        messages: list[Message] = []
        received: list[Message] = [{"type": "http.request", "body": body, "more_body": False}]

        async def receive() -> Message:
            if received:
                return received.pop()
            return await asyncio.Future()  # the caller watches for the client's disconnection

        async def send(message: Message) -> None:
            messages.append(message)

        await self._manager.handle_request(scope, receive, send)
        return messages

    async def _run(self, started: asyncio.Event) -> None:
        async with self._manager.run():
            started.set()
            await self._stopping.wait()


async def _offered(access: IndexAccess) -> list[Tool[Any]]:
    """Return the tools that are of use for the index; all, if it cannot be described now."""
    try:
        async with asyncio.timeout(_LIST_TIMEOUT_S):
            info = await access.index()
    except (ClientError, TimeoutError) as error:
        _LOG.warning("listing all tools, as the index cannot be described: %s", error)
        return list(TOOLS)
    return [tool for tool in TOOLS if tool.is_offered(info)]


def _input_schema(name: str) -> dict[str, Any] | None:
    """Return the schema of a tool's arguments, or None if there is no such tool."""
    tool = BY_NAME.get(name)
    return None if tool is None else _described(tool).input_schema


@cache
def _described(tool: Tool[Any]) -> types.Tool:
    return types.Tool(
        name=tool.name,
        title=tool.title,
        description=tool.description,
        input_schema=tool.arguments.model_json_schema(schema_generator=_PlainSchema),
        output_schema=tool.result.model_json_schema(schema_generator=_PlainSchema),
        annotations=_ANNOTATIONS,
    )


async def _call(
    tool: Tool[Any], access: IndexAccess, given: dict[str, Any]
) -> types.CallToolResult:
    """Run a tool; what goes wrong is told to the model, which may correct itself."""
    try:
        arguments: BaseModel = tool.arguments.model_validate(given)
    except ValidationError as error:
        return _failed(describe_invalid(error))
    try:
        return _answered(await tool.run(access, arguments))
    except ClientError as error:
        return _failed(str(error))


def _answered(answer: ToolAnswer) -> types.CallToolResult:
    plain = answer.result.model_dump(mode="json", exclude_defaults=True)
    content: list[types.ContentBlock] = [
        # Clients that do not read structured results show this to the model.
        types.TextContent(type="text", text=answer.result.model_dump_json(exclude_defaults=True))
    ]
    for picture in answer.pictures:
        if picture.label is not None:
            content.append(types.TextContent(type="text", text=picture.label))
        data = base64.b64encode(picture.data).decode()
        content.append(types.ImageContent(type="image", data=data, mime_type=picture.media_type))
    return types.CallToolResult(content=content, structured_content=plain)


def _failed(message: str) -> types.CallToolResult:
    return types.CallToolResult(
        content=[types.TextContent(type="text", text=message)], is_error=True
    )

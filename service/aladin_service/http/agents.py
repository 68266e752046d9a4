"""Agents: the tools of `aladin_service.mcp` over the application of this process.

The tools are a client of the application's own routes, past its access control: the request of the
agent was let in, and pays for each request of its tools.
"""

from __future__ import annotations

import asyncio
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any

from fastapi import Request
from starlette.types import Message, Receive, Scope, Send

from aladin_service.http.access.rate_limits import TokenBucket
from aladin_service.http.error_responses import error_response
from aladin_service.http.errors import RateLimitedError
from aladin_service.http.middleware import LayeredApplication

if TYPE_CHECKING:
    from mcp.server.streamable_http_manager import StreamableHTTPSessionManager

    from aladin_service.client.clients import AsyncAladinClient


class _Agent:
    """The request of an agent; or, without one, whoever started this process.

    Attributes:
        state: State of the requests of its tools.
    """

    def __init__(self, request_id: str = "", limit: TokenBucket | None = None) -> None:
        self.state: dict[str, Any] = {"request_id": request_id, "key": None, "limit": limit}
        self._limit = limit
        self._paid = 0

    def pay(self) -> None:
        """Pay for one more request of a tool; the agent's own has paid for the first.

        A call that costs more than the client's burst passes when the bucket is full.
        """
        if self._limit is not None and self._paid > 0:
            self._limit.take(1, paid=self._paid)
        self._paid += 1


_AGENT: ContextVar[_Agent] = ContextVar("agent")


def client_of(app: LayeredApplication) -> AsyncAladinClient:
    """Return a client of an application in this process, past its access control."""
    # Not before the first request of an agent: a service imports no HTTP client.
    import httpx

    from aladin_service.client.clients import AsyncAladinClient
    from aladin_service.client.connection import RetryPolicy

    async def inside(scope: Scope, receive: Receive, send: Send) -> None:
        agent = _AGENT.get(None) or _Agent()
        scope["app"], scope["state"] = app, dict(agent.state)
        try:
            agent.pay()
        except RateLimitedError as error:
            await error_response(error, agent.state["request_id"])(scope, receive, send)
        else:
            await app.inside(scope, receive, send)

    return AsyncAladinClient(
        "http://localhost", retries=RetryPolicy(attempts=1), transport=httpx.ASGITransport(inside)
    )


class AgentServer:
    """Answers the protocol's HTTP requests, each on its own: there are no sessions.

    So any process may answer any request. An answer is one JSON document, never a stream. The first
    request starts the server: the SDK takes longer to import than all the rest of the service, and
    60 MB.
    """

    def __init__(self, app: LayeredApplication, max_body_bytes: int) -> None:
        self._app = app
        self._max_body_bytes = max_body_bytes
        self._starting = asyncio.Lock()
        self._stopping = asyncio.Event()
        self._manager: StreamableHTTPSessionManager | None = None
        self._running: asyncio.Task[None] | None = None

    async def answer(self, request: Request, body: bytes) -> list[Message]:
        """Answer one request; cancelling the call cancels the tool."""
        async with self._starting:
            if self._manager is None:
                manager = await asyncio.to_thread(self._make_manager)
                started = asyncio.Event()
                # In a task of its own, which is the one that has to end what it begins.
                self._running = asyncio.create_task(self._run(manager, started))
                await started.wait()
                self._manager = manager
        messages: list[Message] = []
        received: list[Message] = [{"type": "http.request", "body": body, "more_body": False}]

        async def receive() -> Message:
            if received:
                return received.pop()
            return await asyncio.Future()  # the caller watches for the client's disconnection

        async def send(message: Message) -> None:
            messages.append(message)

        before = _AGENT.set(_Agent(request.state.request_id, request.state.limit))
        try:
            await self._manager.handle_request(request.scope, receive, send)
        finally:
            _AGENT.reset(before)
        return messages

    async def stop(self) -> None:
        self._stopping.set()
        if self._running is not None:
            await self._running

    def _make_manager(self) -> StreamableHTTPSessionManager:
        from mcp.server.transport_security import TransportSecuritySettings

        from aladin_service.mcp.tools import make_server

        server = make_server(client_of(self._app))
        # Only for its manager: the route is the application's.
        server.streamable_http_app(
            json_response=True,
            stateless_http=True,
            max_request_body_size=self._max_body_bytes,
            # The service itself checks hosts and origins, with its own settings.
            transport_security=TransportSecuritySettings(enable_dns_rebinding_protection=False),
        )
        return server.session_manager

    async def _run(self, manager: StreamableHTTPSessionManager, started: asyncio.Event) -> None:
        async with manager.run():
            started.set()
            await self._stopping.wait()

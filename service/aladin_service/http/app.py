"""Builds the HTTP service."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from importlib.metadata import version
from importlib.util import find_spec
from typing import TYPE_CHECKING

from fastapi import FastAPI, Request
from starlette.middleware.cors import CORSMiddleware
from starlette.types import Message

from aladin_service.http.access.control import AccessControl
from aladin_service.http.access.policy import AccessPolicy, make_policy
from aladin_service.http.error_responses import install_error_handlers
from aladin_service.http.middleware import (
    BodyLimit,
    LayeredApplication,
    RequestContext,
)
from aladin_service.http.openapi import (
    OPENAPI_TAGS,
    complete_document,
    describe_access,
)
from aladin_service.http.routes import (
    batch,
    embeddings,
    evidence,
    health,
    index,
    items,
    listing,
    mcp,
    page,
    pictures,
    rerank,
    search,
)
from aladin_service.http.shared_state import ServiceState
from aladin_service.observe.metrics import Metrics
from aladin_service.observe.tracing import Tracing
from aladin_service.settings import ServiceSettings
from aladin_service.work.workers import Workers

if TYPE_CHECKING:
    from aladin_service.http.agents import AgentServer

# Memory for the bodies of all unanswered requests; what they become takes a multiple of it.
_MAX_BODIES_BYTES = 256 * 2**20

# What pages of other origins may set, where there are such origins.
_CORS_REQUEST_HEADERS = (
    "Authorization",
    "Content-Type",
    "X-API-Key",
    "X-Request-ID",
    "MCP-Protocol-Version",
    "Mcp-Method",
    "Mcp-Name",
)

# Routes are tried in this order.
_ROUTERS = (
    search.router,
    batch.router,
    evidence.router,
    listing.router,
    items.router,
    pictures.router,
    index.router,
    health.router,
    page.router,
    rerank.router,
    embeddings.router,
    mcp.router,
)


def create_app(
    workers: Workers,
    settings: ServiceSettings,
    metrics: Metrics,
    tracing: Tracing | None = None,
    policy: AccessPolicy | None = None,
) -> FastAPI:
    """Build the service of one index.

    Args:
        workers: Workers of the index; they run from the application's start-up to its shutdown.
        settings: Limits of the service.
        metrics: Metrics of this application and its workers.
        tracing: Receiver of the traces of its requests; closed at shutdown.
        policy: Access rules, or None for those of the settings on 127.0.0.1.

    Returns:
        An ASGI application.

    Raises:
        ConfigError: If the access settings are invalid.
    """
    policy = policy or make_policy(settings)

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncGenerator[None]:
        service = ServiceState(workers, settings, metrics, policy)
        app.state.service = service
        await workers.start()
        try:
            async with _agents_answered(app, service):
                yield
        finally:
            await workers.stop()
            if tracing is not None:
                await asyncio.to_thread(tracing.close)

    app = LayeredApplication(
        title="ALADIN search",
        description="Search photos with words and words with photos.",
        version=version("aladin-search"),
        lifespan=lifespan,
        openapi_tags=OPENAPI_TAGS,
        # The service has its own page at /docs, which loads no viewer from another host.
        docs_url=None,
        redoc_url=None,
        openapi_url=None,  # `describe_access` serves it
    )
    install_error_handlers(app)
    gate = search.SearchGate(app.framework, workers)
    limited = BodyLimit(
        gate,
        max_bytes=settings.max_body_bytes,
        max_bytes_in_all=_MAX_BODIES_BYTES,
        timeout_s=settings.body_timeout_s,
    )
    controlled = AccessControl(limited, policy)
    # Around all others: an oversized body, for example, is rejected with a request id.
    app.layers = RequestContext(controlled, metrics, tracing)
    if policy.origins:
        app.layers = CORSMiddleware(
            app.layers,
            allow_origins=policy.origins,
            allow_methods=("GET", "HEAD", "POST", "DELETE"),
            # A page sets the headers of its key itself: no credentials of the browser are allowed.
            allow_headers=_CORS_REQUEST_HEADERS,
            expose_headers=("Retry-After", "X-Request-ID"),
        )
    for router in _ROUTERS:
        # Not `include_router`, which makes every route of every application again.
        app.router.routes.extend(router.routes)
    complete_document(app)
    describe_access(app, policy)
    return app


@asynccontextmanager
async def _agents_answered(app: FastAPI, service: ServiceState) -> AsyncGenerator[None]:
    """Answer requests of agents, if the settings allow it and the extra is installed.

    Args:
        app: Application of the route.
        service: State of the application.
    """
    app.state.answer_agent = None
    if not service.settings.mcp or find_spec("mcp") is None:
        yield
        return
    agents = _Agents(service)
    app.state.answer_agent = agents.answer
    try:
        yield
    finally:
        app.state.answer_agent = None
        await agents.stop()


class _Agents:
    """The server of agents, which the first of their requests starts.

    The protocol's SDK takes longer to import than all the rest of the service, and 60 MB.
    """

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

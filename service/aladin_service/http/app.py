"""Builds the HTTP service."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from importlib.metadata import version
from importlib.util import find_spec
from typing import TYPE_CHECKING

from fastapi import FastAPI
from starlette.middleware.cors import CORSMiddleware

from aladin_service.http.access.control import AccessControl
from aladin_service.http.access.policy import AccessPolicy, make_policy
from aladin_service.http.agents import AgentServer
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
    archive,
    batch,
    embeddings,
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
from aladin_service.settings import ServiceSettings
from aladin_service.work.workers import Workers

if TYPE_CHECKING:
    from aladin_service.observe.otel_tracing import OtelTracing

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
    listing.router,
    items.router,
    archive.router,
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
    tracing: OtelTracing | None = None,
    policy: AccessPolicy | None = None,
) -> LayeredApplication:
    policy = policy or make_policy(settings)

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncGenerator[None]:
        app.state.service = ServiceState(workers, settings, metrics, policy)
        await workers.start()
        try:
            yield
        finally:
            if agents is not None:
                await agents.stop()
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
    app.inside = limited
    agents = None
    if settings.mcp and find_spec("mcp") is not None:
        agents = AgentServer(app, settings.max_json_bytes)
    app.state.agents = agents
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

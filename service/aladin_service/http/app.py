"""Builds the HTTP service."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from importlib.metadata import version

from fastapi import FastAPI

from aladin_service.http.access.control import AccessControl, AnswerHeaders
from aladin_service.http.access.policy import AccessPolicy, make_policy
from aladin_service.http.agents import agents_answered
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
    knn_service,
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
from aladin_service.photos.photo_fetcher import PhotoFetcher
from aladin_service.settings import ServiceSettings
from aladin_service.work.workers import Workers

# Routes are tried in this order.
_ROUTERS = (
    search.router,
    batch.router,
    evidence.router,
    knn_service.router,
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
    policy = policy or make_policy(settings, metrics=metrics)

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncGenerator[None]:
        service = ServiceState(workers, settings, metrics, PhotoFetcher(settings), policy)
        app.state.service = service
        await workers.start()
        try:
            async with agents_answered(app, service):
                yield
        finally:
            await workers.stop()
            if policy.rates is not None:
                await policy.rates.close()
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
        max_bytes_in_all=settings.max_bodies_bytes,
        timeout_s=settings.body_timeout_s,
    )
    controlled = AccessControl(limited, policy)
    # The outermost: an oversized body, for example, is rejected with a request id.
    app.layers = RequestContext(controlled, AnswerHeaders(policy), metrics, tracing)
    for router in _ROUTERS:
        # Not `include_router`, which makes every route of every application again.
        app.router.routes.extend(router.routes)
    complete_document(app)
    describe_access(app, policy)
    return app

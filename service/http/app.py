"""Builds the HTTP service."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from importlib.metadata import version

from fastapi import FastAPI

from service.http.errors import install_error_handlers
from service.http.middleware import BodyLimit, RequestContext
from service.http.routers import health, images, index, items, search
from service.http.state import ServiceState
from service.metrics import Metrics
from service.settings import ServiceSettings
from service.work.workers import Workers


def create_app(workers: Workers, settings: ServiceSettings, metrics: Metrics) -> FastAPI:
    """Build the service of one index.

    Args:
        workers: of the index; they live from the application's start-up to its shutdown.
        settings: limits.
        metrics: where this application and its workers count.

    Returns:
        An ASGI application.
    """

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncGenerator[None]:
        app.state.service = ServiceState(workers, settings, metrics)
        await workers.start()
        try:
            yield
        finally:
            await workers.stop()

    app = FastAPI(
        title="ALADIN search",
        description="Search photos with words and words with photos.",
        version=version("aladin-search"),
        lifespan=lifespan,
    )
    install_error_handlers(app)
    # The last one added is the outermost: an oversized body is refused with a request id.
    app.add_middleware(BodyLimit, max_bytes=settings.max_body_bytes)
    app.add_middleware(RequestContext)
    for router in (search.router, items.router, images.router, index.router, health.router):
        app.include_router(router)
    return app

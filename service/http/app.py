"""Builds the HTTP service."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, closing
from importlib.metadata import version

from fastapi import FastAPI

from service.http.errors import install_error_handlers
from service.http.live_index import LiveIndex
from service.http.middleware import BodyLimit, RequestContext
from service.http.routers import health, images, index, items, search
from service.http.settings import ServiceSettings
from service.http.state import ServiceState
from service.http.worker_pool import WorkerPool


def create_app(live: LiveIndex, settings: ServiceSettings) -> FastAPI:
    """Build the service of one index.

    Args:
        live: the index, open or not; the application opens it when it starts, or else as soon as
            a generation is published.
        settings: limits.

    Returns:
        An ASGI application; its threads live from its start-up to its shutdown.
    """

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncGenerator[None]:
        # The threads end before the index that they search is closed.
        with closing(live), WorkerPool(settings.workers, settings.max_waiting) as pool:
            app.state.service = ServiceState(live, pool, settings)
            await app.state.service.refresh()
            yield

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

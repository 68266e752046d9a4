"""How uvicorn serves the application."""

from __future__ import annotations

import uvicorn
from starlette.types import ASGIApp

from service.http.access.proxies import ForwardedClient, TrustedProxies
from service.http.protocol import bounded_protocol
from service.settings import ServiceSettings


def server_config(
    app: ASGIApp, settings: ServiceSettings, proxies: TrustedProxies
) -> uvicorn.Config:
    """Return the configuration of uvicorn.

    Args:
        app: Application to serve.
        settings: Limits of connections and of the time to shut down.
        proxies: Peers whose `X-Forwarded-For` is believed.
    """
    return uvicorn.Config(
        ForwardedClient(app, proxies) if proxies else app,
        log_config=None,
        server_header=False,
        access_log=False,  # the application writes a better line of each request
        lifespan="on",
        http=bounded_protocol(settings, proxies),
        ws="none",  # its connections would have none of the limits of `BoundedProtocol`
        # uvicorn believes the header of every process of this machine, and whatever it holds.
        proxy_headers=False,
        timeout_graceful_shutdown=settings.shutdown_s,
    )

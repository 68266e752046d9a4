"""Points on a server of Qdrant."""

from __future__ import annotations

import math

from qdrant_client import QdrantClient

from index.remote.connect import EngineOptions
from index.remote.qdrant.client_store import ClientStore
from index.remote.qdrant.settings import QdrantSettings
from index.remote.qdrant.tries import Tries


def open_server_store(
    engine: str, url: str, options: EngineOptions, settings: QdrantSettings
) -> ClientStore:
    """Make a client of a server, which need not answer yet.

    Args:
        engine: what it is called in messages.
        url: ``http://host:port`` or ``https://host:port``.
        options: how it is reached.
        settings: of collections.
    """
    tries = Tries(engine, options.timeout_s, options.retries)
    client = QdrantClient(
        url=url,
        api_key=options.token,
        # In whole seconds, for the server; `tries` says how long an answer is waited for.
        timeout=math.ceil(options.timeout_s),
        # It would be asked in a thread of its own, and its version be warned of.
        check_compatibility=False,
        event_hooks={"request": [tries.limit]},
    )
    return ClientStore(engine, client, tries, settings, local=False)

"""From where an index is to Qdrant."""

from __future__ import annotations

import math
from urllib.parse import unquote, urlsplit

from qdrant_client import QdrantClient

from index.remote.client import EngineClient
from index.remote.connect import EngineOptions
from index.remote.location import EngineLocation
from index.remote.qdrant.client import QdrantEngine
from index.remote.qdrant.client_store import ClientStore


def connect_qdrant(location: EngineLocation, options: EngineOptions) -> EngineClient:
    """Make a client of a server, or of the local mode for an address of a folder."""
    parts = urlsplit(location.url)
    local = parts.scheme == "file"
    if local:
        client = QdrantClient(path=unquote(parts.path))
    else:
        client = QdrantClient(
            url=location.url,
            api_key=options.token,
            timeout=math.ceil(options.timeout_s),
            check_compatibility=False,
        )
    return QdrantEngine("qdrant", ClientStore(client, local=local), location.name)

"""From a location to a client of Milvus."""

from __future__ import annotations

from index.remote.connect import EngineOptions
from index.remote.location import EngineLocation
from index.remote.milvus.client import MilvusEngine
from index.remote.milvus.connection import MilvusConnection


def connect_milvus(location: EngineLocation, options: EngineOptions) -> MilvusEngine:
    """Make a client; Milvus need not answer yet.

    Raises:
        ConfigError: pymilvus is not installed, or Milvus has no such option.
    """
    connection = MilvusConnection(location.url, options.token, options.timeout_s, options.retries)
    return MilvusEngine(connection, location)

"""Creates the client of the vector database that stores an index."""

from __future__ import annotations

from dataclasses import replace

from aladin_index.engines.client import EngineClient, EngineOptions
from aladin_index.format.engine_location import ENGINE_FILE, EngineLocation, check_url, is_folder
from aladin_network.errors import ConfigError


def connect(location: EngineLocation, options: EngineOptions | None = None) -> EngineClient:
    """Create a client; the vector database need not respond yet.

    Args:
        location: Where the index is.
        options: How this machine reaches the engine, or None for the defaults.

    Raises:
        ConfigError: If the engine's package is not installed, the engine has no such option, or
            the address is one that `options` has to name.
    """
    options = options or EngineOptions()
    if options.url is not None:
        check_url(location.engine, options.url)
        location = replace(location, url=options.url)
    else:
        _check_named_by_folder(location, options)
    if location.engine == "milvus":
        from aladin_index.engines.milvus.client import connect_milvus

        return connect_milvus(location, options)
    if location.engine == "qdrant":
        from aladin_index.engines.qdrant.connect import connect_qdrant

        return connect_qdrant(location, options)
    from aladin_index.engines.qdrant.connect import connect_edge

    return connect_edge(location)


def _check_named_by_folder(location: EngineLocation, options: EngineOptions) -> None:
    """Reject addresses that an index folder, possibly from elsewhere, must not choose alone.

    Raises:
        ConfigError: If the address is a folder of ``qdrant``, or a token would be sent to it.
    """
    if location.engine == "qdrant" and is_folder(location.url):
        raise ConfigError(
            f"{ENGINE_FILE} names the folder {location.url}, and the local mode of qdrant runs "
            "code that such a folder contains (pickles): if you trust it, set "
            f"ALADIN_ENGINE_URL={location.url}; qdrant-edge keeps an index in a folder without this"
        )
    if options.token is not None:
        raise ConfigError(
            f"ALADIN_ENGINE_TOKEN is not sent to an address that only {ENGINE_FILE} names: set "
            f"ALADIN_ENGINE_URL={location.url} if that is your {location.engine}, or unset the "
            "token"
        )

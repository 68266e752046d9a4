"""From where an index is to a client of the engine that keeps it."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from aladin_index.engines.client import EngineClient
from aladin_index.format.engine_location import ENGINE_FILE, EngineLocation, check_url, is_folder
from aladin_network.errors import ConfigError


@dataclass(frozen=True, kw_only=True)
class EngineOptions:
    """How this machine reaches an engine, whichever index it is for.

    Attributes:
        url: in the place of the one in ``engine.json``; None: that one, which is not trusted as
            far: no token is sent to it, and it may not be a folder that the local mode of
            ``qdrant`` reads.
        token: that the engine asks for: an API key, or ``user:password``; None: none. It is not
            shown.
        timeout_s: of one call, tries included.
        retries: that a call gets where it fails and is safe to repeat; 0: none.
    """

    url: str | None = None
    token: str | None = field(default=None, repr=False)
    timeout_s: float = 10.0
    retries: int = 3

    def __post_init__(self) -> None:
        """Refuse impossible values.

        Raises:
            ConfigError: no time, or less than no retries.
        """
        if self.timeout_s <= 0:
            raise ConfigError(f"engine timeout_s: expected more than 0, got {self.timeout_s}")
        if self.retries < 0:
            raise ConfigError(f"engine retries: expected at least 0, got {self.retries}")


def connect(location: EngineLocation, options: EngineOptions | None = None) -> EngineClient:
    """Make a client; the engine need not answer yet.

    Args:
        location: of the index.
        options: of this machine; None: those of `EngineOptions`.

    Raises:
        ConfigError: the engine's package is not installed, it has no such option, or the address
            is one that `options` has to name.
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
    """Refuse what the folder of an index, which may come from elsewhere, must not decide alone.

    Raises:
        ConfigError: the address is a folder of ``qdrant``, or a token would be sent to it.
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

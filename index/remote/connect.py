"""From where an index is to a client of the engine that keeps it."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from aladin.errors import ConfigError
from index.remote.client import EngineClient
from index.remote.location import EngineLocation, check_url


@dataclass(frozen=True, kw_only=True)
class EngineOptions:
    """How this machine reaches an engine, whichever index it is for.

    Attributes:
        url: in the place of the one in ``engine.json``; None: that one.
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
        ConfigError: the engine's package is not installed, or it has no such option.
    """
    options = options or EngineOptions()
    if options.url is not None:
        check_url(location.engine, options.url)
        location = replace(location, url=options.url)
    if location.engine == "milvus":
        from index.remote.milvus.connect import connect_milvus

        return connect_milvus(location, options)
    if location.engine == "qdrant":
        from index.remote.qdrant.connect import connect_qdrant

        return connect_qdrant(location, options)
    from index.remote.qdrant.connect import connect_edge

    return connect_edge(location)

"""The connection to a Ray cluster; every call of Ray is made through what this module returns."""

from __future__ import annotations

import os
import re
import socket
from collections.abc import Generator
from contextlib import contextmanager
from typing import Any

from aladin.errors import ClusterError, ConfigError

# Ray takes some minutes to say that nobody listens at an address, and then ends the process.
_CONNECT_S = 5.0
_HOST_AND_PORT = re.compile(r"(?:ray://)?(?P<host>[^/:\s]+|\[[0-9a-fA-F:]+\]):(?P<port>\d+)/?")


@contextmanager
def connected(address: str) -> Generator[Any]:
    """Connect to a cluster for the time of the block; one connection a process.

    Args:
        address: ``HOST:PORT`` of the head, where this machine is a node of the cluster, or "auto"
            for that cluster; ``ray://HOST:PORT`` of the head's client server from elsewhere;
            "local" starts a cluster of this machine alone, for the time of the block.

    Yields:
        The module `ray`.

    Raises:
        ConfigError: Ray is not installed, or this is no address.
        ClusterError: nobody answers there, or it cannot be used from here.
    """
    ray = _ray()
    match = _HOST_AND_PORT.fullmatch(address)
    if match is not None:
        _check_listens(address, match["host"].strip("[]"), int(match["port"]))
    elif address not in ("auto", "local"):
        raise ConfigError(
            f"{address!r}: expected HOST:PORT, ray://HOST:PORT, auto or local as the address of "
            "the Ray cluster"
        )
    # What the workers print stays in their logs; Ray's own words go nowhere but to its errors.
    options: dict[str, Any] = {"logging_level": "error", "log_to_driver": False}
    if address == "local":
        options["include_dashboard"] = False
    try:
        ray.init(address=address, **options)
    except (ray.exceptions.RayError, OSError, RuntimeError, ValueError, ImportError) as error:
        reason = " ".join(str(error).split())
        if address == "auto" and isinstance(error, ConnectionError):
            reason = "this machine is no node of one; give HOST:PORT of its head, or local"
        elif isinstance(error, ConnectionError):
            reason += " (one that takes tokens needs RAY_AUTH_MODE=token here)"
        raise ClusterError(f"the Ray cluster at {address} cannot be used: {reason}") from error
    try:
        yield ray
    finally:
        ray.shutdown()


def has_gpus(ray: Any) -> bool:
    """Whether a node of the cluster has a graphics card."""
    return ray.cluster_resources().get("GPU", 0) >= 1


def _ray() -> Any:
    # When a node is lost, Ray prints pages of that node's log on stdout, which is for data alone.
    # It reads this once, when it is imported.
    os.environ.setdefault("RAY_DEDUP_LOGS_SKIP_REGEX", ".")
    try:
        import ray
    except ImportError as error:
        raise ConfigError(
            "encoding on a Ray cluster needs the package ray: pip install 'aladin-search[ray]'"
        ) from error
    return ray


def _check_listens(address: str, host: str, port: int) -> None:
    try:
        socket.create_connection((host, port), timeout=_CONNECT_S).close()
    except OSError as error:
        reason = error.strerror or str(error)
        raise ClusterError(f"nobody answers at {address}: {reason}") from error

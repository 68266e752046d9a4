"""Which open connections are served: so many in all, so many of one client, and probes always.

At the limits a connection is not closed at once, for it may be a probe of whoever decides whether
the service is alive. It has a short time to send a head. A probe is answered, any other request is
refused. Few connections wait so, and the client that has most of them loses its oldest one first:
a client cannot crowd out the probes of another one, however many connections it opens.
"""

from __future__ import annotations

import logging
import time
from collections import Counter
from typing import Literal, Protocol

from service.http.access.proxies import TrustedProxies
from service.http.access.rate_limits import Clock, client_network
from service.settings import ServiceSettings

_LOG = logging.getLogger(__name__)

# Connections beyond the limits that may wait for their heads at the same time.
PROBE_PLACES = 100

# Refused connections come by the thousand, and one line tells as much as all of them.
_LOG_EVERY_S = 60.0

Place = Literal["served", "probe"]


class Closable(Protocol):
    """A connection as its limits see it."""

    def close_as_full(self) -> None:
        """Answer that there are too many connections, and close."""
        ...


class ConnectionLimits:
    """The open connections of one server."""

    def __init__(
        self, settings: ServiceSettings, proxies: TrustedProxies, clock: Clock = time.monotonic
    ) -> None:
        """Start without connections.

        Args:
            settings: Limits.
            proxies: Peers that stand for many clients and are exempt from the limit for one.
            clock: Time in seconds.
        """
        self._max_in_all = settings.max_connections
        self._max_per_client = settings.max_connections_per_client
        self._proxies = proxies
        self._clock = clock
        self._served: dict[Closable, str] = {}
        self._served_of: Counter[str] = Counter()
        self._probes: dict[Closable, str] = {}
        self._probes_of: dict[str, dict[Closable, None]] = {}  # each in the order of arrival
        self._next_log_s = clock()

    def enter(self, connection: Closable, peer: str | None) -> Place:
        """Find a place for a new connection.

        Args:
            connection: Hashable by identity.
            peer: IP address, or None for a Unix socket, whose clients are not told apart.

        Returns:
            "served", or "probe" if a limit is reached and no more than a probe may be answered.
        """
        who = "" if peer is None else client_network(peer)
        if self._is_over(who, peer):
            self._make_room()
            self._probes[connection] = who
            self._probes_of.setdefault(who, {})[connection] = None
            return "probe"
        self._served[connection] = who
        self._served_of[who] += 1
        return "served"

    def leave(self, connection: Closable) -> None:
        """Forget a connection that is closed, or is about to be."""
        who = self._served.pop(connection, None)
        if who is not None:
            self._served_of[who] -= 1
            if not self._served_of[who]:
                del self._served_of[who]
            return
        who = self._probes.pop(connection, None)
        if who is not None:
            del self._probes_of[who][connection]
            if not self._probes_of[who]:
                del self._probes_of[who]

    def _is_over(self, who: str, peer: str | None) -> bool:
        if len(self._served) >= self._max_in_all:
            self._tell(f"{self._max_in_all} connections are open (ALADIN_MAX_CONNECTIONS)")
            return True
        if peer is None or peer in self._proxies:
            return False
        if self._served_of[who] >= self._max_per_client:
            self._tell(
                f"{who} has {self._max_per_client} connections open "
                "(ALADIN_MAX_CONNECTIONS_PER_CLIENT; FORWARDED_ALLOW_IPS exempts proxies)"
            )
            return True
        return False

    def _make_room(self) -> None:
        if len(self._probes) >= PROBE_PLACES:
            most = max(self._probes_of.values(), key=len)
            oldest = next(iter(most))
            self.leave(oldest)
            oldest.close_as_full()

    def _tell(self, why: str) -> None:
        now_s = self._clock()
        if now_s >= self._next_log_s:
            self._next_log_s = now_s + _LOG_EVERY_S
            _LOG.warning("refusing connections, except probes: %s", why)

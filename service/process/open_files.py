"""How many files and connections a process may have open."""

from __future__ import annotations

import logging
import sys

_LOG = logging.getLogger(__name__)

# Files of the index, pipes to workers, connections to an engine and to a Redis, photos being read.
_OTHER_FILES = 256


def allow_open_files(connections: int) -> None:
    """Raise this process's limit of open files if it is too low for its connections.

    At the limit the system accepts no connection, not even that of a probe. Does nothing on
    Windows, which has no such limit.

    Args:
        connections: Connections that may be open at the same time.
    """
    if sys.platform == "win32":
        return
    import resource

    needed = connections + _OTHER_FILES
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == resource.RLIM_INFINITY or soft >= needed:
        return
    raised = needed if hard == resource.RLIM_INFINITY else min(needed, hard)
    resource.setrlimit(resource.RLIMIT_NOFILE, (raised, hard))
    if raised < needed:
        _LOG.warning(
            "%d connections need %d open files, but the system allows %d: raise its limit "
            "(ulimit -n) or lower ALADIN_MAX_CONNECTIONS",
            connections,
            needed,
            hard,
        )

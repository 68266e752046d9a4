"""How many files a process may have open."""

from __future__ import annotations

import subprocess
import sys

import pytest

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="Windows has no such limit")

SCRIPT = """
import logging, resource, sys
from aladin_service.work.process_setup import allow_open_files
soft, hard, connections = map(int, sys.argv[1:])
resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
logging.basicConfig(format="%(levelname)s %(message)s")
allow_open_files(connections)
print(*resource.getrlimit(resource.RLIMIT_NOFILE))
"""


def limits_after(soft: int, hard: int, connections: int) -> tuple[str, str]:
    """Return the limits of a process that allowed for connections, and what it logged."""
    command = [sys.executable, "-c", SCRIPT, str(soft), str(hard), str(connections)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    return done.stdout.strip(), done.stderr


@pytest.mark.parametrize(
    ("soft", "hard", "connections", "expected"),
    [
        (128, 4096, 600, "856 4096"),
        (1024, 4096, 600, "1024 4096"),
        (856, 4096, 600, "856 4096"),
        (128, 856, 600, "856 856"),
    ],
)
def test_a_limit_that_is_too_low_is_raised(
    soft: int, hard: int, connections: int, expected: str
) -> None:
    assert limits_after(soft, hard, connections) == (expected, "")


def test_it_is_told_where_the_system_does_not_allow_it() -> None:
    limits, log = limits_after(128, 500, 600)
    assert limits == "500 500"
    assert log.startswith("WARNING 600 connections need 856 open files, but the system allows 500:")
    assert "ALADIN_MAX_CONNECTIONS" in log

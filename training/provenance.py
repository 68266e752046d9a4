"""Where a run's code comes from."""

from __future__ import annotations

import subprocess
from pathlib import Path


def code_commit() -> str:
    """Return the commit of the code that runs, "unknown" outside a repository."""
    try:
        answer = subprocess.run(
            ["git", "rev-parse", "HEAD"],
            cwd=Path(__file__).parent,
            capture_output=True,
            text=True,
            check=True,
        )
    except (OSError, subprocess.CalledProcessError):
        return "unknown"
    return answer.stdout.strip()

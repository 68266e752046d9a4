"""Log messages on stderr; only the command line sets this up."""

from __future__ import annotations

import logging
import sys

# Whose informative messages are worth reading: what third parties log below warnings is not.
_OURS = ("aladin", "training", "index", "service", "uvicorn")


class StderrHandler(logging.Handler):
    """Writes to what stderr is at that moment: a progress bar puts itself in its place."""

    def emit(self, record: logging.LogRecord) -> None:
        """Write one record."""
        try:
            sys.stderr.write(self.format(record) + "\n")
            sys.stderr.flush()
        except Exception:
            self.handleError(record)


def log_to_stderr(*, debug: bool) -> None:
    """Show this project's messages from INFO on (DEBUG if asked for), others' warnings.

    Args:
        debug: show everything.
    """
    handler = StderrHandler()
    handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(message)s", "%H:%M:%S"))
    root = logging.getLogger()
    root.handlers = [each for each in root.handlers if not isinstance(each, StderrHandler)]
    root.addHandler(handler)
    root.setLevel(logging.WARNING)
    for name in _OURS:
        logging.getLogger(name).setLevel(logging.DEBUG if debug else logging.INFO)

"""Log messages on stderr, as text or as JSON lines; only entry points set this up."""

from __future__ import annotations

import logging
import sys
from typing import Literal, NamedTuple

from service.telemetry.log_format import JsonFormatter, TextFormatter

LogFormat = Literal["text", "json"]

# Whose informative messages are worth reading: what third parties log below warnings is not.
_OURS = ("aladin", "training", "index", "service", "uvicorn")


class LogSetup(NamedTuple):
    """How a process writes its log; it may travel to another process.

    Attributes:
        debug: show everything.
        format: for people, or for programs.
    """

    debug: bool = False
    format: LogFormat = "text"


class StderrHandler(logging.Handler):
    """Writes to what stderr is at that moment: a progress bar puts itself in its place."""

    def __init__(self, setup: LogSetup) -> None:
        """Write as `setup` says."""
        super().__init__()
        self.setup = setup
        self.setFormatter(JsonFormatter() if setup.format == "json" else TextFormatter())

    def emit(self, record: logging.LogRecord) -> None:
        """Write one record."""
        try:
            sys.stderr.write(self.format(record) + "\n")
            sys.stderr.flush()
        except Exception:
            self.handleError(record)


def log_to_stderr(setup: LogSetup) -> None:
    """Show this project's messages from INFO on (DEBUG if asked for), others' warnings.

    May be called again: the last call counts. A worker process calls it first of all, with what
    `log_setup` returned in the process that started it.

    Args:
        setup: how.
    """
    root = logging.getLogger()
    root.handlers = [each for each in root.handlers if not isinstance(each, StderrHandler)]
    root.addHandler(StderrHandler(setup))
    root.setLevel(logging.WARNING)
    for name in _OURS:
        logging.getLogger(name).setLevel(logging.DEBUG if setup.debug else logging.INFO)
    # Whoever reads JSON lines expects nothing else between them.
    logging.captureWarnings(setup.format == "json")


def log_setup() -> LogSetup:
    """Return how this process writes its log; the default where nothing set it up."""
    handlers = logging.getLogger().handlers
    return next((each.setup for each in handlers if isinstance(each, StderrHandler)), LogSetup())

"""Logging: log lines on stderr, as text or JSON, with the facts of the current request.

Nothing here reads headers or bodies: keys and the content of queries are never logged. Only entry
points configure logging.
"""

from __future__ import annotations

import json
import logging
import sys
import time
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

if TYPE_CHECKING:
    from aladin_service.search.job import Answered, QueueName, SearchJob

# The request that is being answered, or None outside any. Tasks that a request starts inherit it;
# threads do not.
CURRENT_REQUEST: ContextVar[RequestRecord | None] = ContextVar("request", default=None)

# Attribute of a log record, set by ``extra``, with further fields of its JSON object.
FIELDS = "fields"

# Loggers that log from INFO on; third parties log only warnings and errors. `service.access` and
# `service.audit` are the names of the access log and the audit log.
_OURS = (
    "aladin_network",
    "aladin_training",
    "aladin_index",
    "aladin_service",
    "service",
    "uvicorn",
)
# Announce downloads, conversions and exports of graphs, for which a person waits.
_AWAITED = ("aladin_network.conversion", "aladin_network.graphs")


class SearchRecord(NamedTuple):
    """A search executed for a request.

    Attributes:
        queue: Queue in which the search waited.
        job: The job, including when it was received.
        answered: Outcome of the search.
    """

    queue: QueueName
    job: SearchJob
    answered: Answered


@dataclass(slots=True)
class RequestRecord:
    """One request, from its headers to the end of its response.

    Attributes:
        request_id: Request ID, also sent as a header of the response.
        path: Path of the request, which decides the shape of its errors.
        trace_id: ID of the request's trace, 32 hexadecimal digits, or None if there is no trace.
        error_code: Error code, if the response is an error.
        searches: Searches that were answered; a request may contain several.
        failed_parts: Number of failed searches in a request with several searches; the others
            succeeded.
        documents: Number of documents in the body of the request.
    """

    request_id: str
    path: str = ""
    trace_id: str | None = None
    error_code: str | None = None
    searches: list[SearchRecord] = field(default_factory=list["SearchRecord"])
    failed_parts: int = 0
    documents: int = 0


class TextFormatter(logging.Formatter):
    """Formats time of day, level and message; within a request, also its ID."""

    def __init__(self) -> None:
        super().__init__("%(asctime)s %(levelname)s %(message)s", "%H:%M:%S")

    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802, logging's own name
        line = super().formatMessage(record)
        request = CURRENT_REQUEST.get()
        return line if request is None else f"{line} [{request.request_id}]"


class BriefFormatter(logging.Formatter):
    """Formats the message, with its level in front if that is above INFO."""

    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802, logging's own name
        if record.levelno <= logging.INFO:
            return record.message
        return f"{record.levelname.lower()}: {record.message}"


class JsonFormatter(logging.Formatter):
    """Formats one object per line: time (UTC), level, logger, pid, message and other fields.

    Within a request also request_id and trace_id; with a failure, `exception` holds the whole
    traceback.
    """

    def format(self, record: logging.LogRecord) -> str:
        seconds = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(record.created))
        line: dict[str, Any] = {
            "time": f"{seconds}.{int(record.msecs):03d}Z",
            "level": record.levelname,
            "logger": record.name,
            "pid": record.process,
            "message": record.getMessage(),
        }
        request = CURRENT_REQUEST.get()
        if request is not None:
            line["request_id"] = request.request_id
            if request.trace_id is not None:
                line["trace_id"] = request.trace_id
        fields: dict[str, Any] | None = getattr(record, FIELDS, None)
        if fields is not None:
            line.update(fields)
        if record.exc_info:
            line["exception"] = self.formatException(record.exc_info)
        return json.dumps(line, separators=(",", ":"), default=str)


LogFormat = Literal["text", "json"]


class LogSetup(NamedTuple):
    """Log configuration of a process; it may be sent to another process.

    Attributes:
        debug: Show all messages.
        format: Format for people or for programs.
        brief: Show warnings, downloads and conversions alone, without the time: for the person who
            started a program at a terminal. Without effect on all messages and on JSON.
    """

    debug: bool = False
    format: LogFormat = "text"
    brief: bool = False

    @property
    def is_brief(self) -> bool:
        return self.brief and not self.debug and self.format == "text"

    def formatter(self) -> logging.Formatter:
        if self.format == "json":
            return JsonFormatter()
        return BriefFormatter() if self.is_brief else TextFormatter()


class StderrHandler(logging.Handler):
    """Writes to the current stderr, which a progress bar may replace."""

    def __init__(self, setup: LogSetup) -> None:
        super().__init__()
        self.setup = setup
        self.setFormatter(setup.formatter())

    def emit(self, record: logging.LogRecord) -> None:
        try:
            sys.stderr.write(self.format(record) + "\n")
            sys.stderr.flush()
        except Exception:
            self.handleError(record)


def log_to_stderr(setup: LogSetup) -> None:
    """Show this project's messages from INFO on (DEBUG if asked for), others' warnings.

    May be called again: the last call counts. A worker process calls it first of all, with what
    `log_setup` returned in the process that started it.
    """
    root = logging.getLogger()
    root.handlers = [each for each in root.handlers if not isinstance(each, StderrHandler)]
    root.addHandler(StderrHandler(setup))
    root.setLevel(logging.WARNING)
    level = logging.DEBUG if setup.debug else logging.INFO
    for name in _OURS:
        logging.getLogger(name).setLevel(logging.WARNING if setup.is_brief else level)
    for name in _AWAITED:
        logging.getLogger(name).setLevel(level)
    # A reader of JSON lines expects nothing else between them.
    logging.captureWarnings(setup.format == "json")


def log_setup() -> LogSetup:
    """Return the log configuration of this process; the default if none was set."""
    handlers = logging.getLogger().handlers
    return next((each.setup for each in handlers if isinstance(each, StderrHandler)), LogSetup())

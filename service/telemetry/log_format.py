"""How a log record is written: one line for people, or one JSON object for programs.

Nothing here reads headers or bodies: keys and what users search for are never logged.
"""

from __future__ import annotations

import json
import logging
import time
from typing import Any

from service.telemetry.request_record import current_request

# The attribute of a record, set by ``extra``, that holds further fields of its JSON object.
FIELDS = "fields"


class TextFormatter(logging.Formatter):
    """Time of day, level and message; within a request, its id."""

    def __init__(self) -> None:
        """Write local time."""
        super().__init__("%(asctime)s %(levelname)s %(message)s", "%H:%M:%S")

    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802, logging's own name
        """Write all but a traceback."""
        line = super().formatMessage(record)
        request = current_request()
        return line if request is None else f"{line} [{request.request_id}]"


class JsonFormatter(logging.Formatter):
    """One object a line: time (UTC), level, logger, pid, message, and what else there is.

    Within a request also request_id and trace_id; with a failure, `exception` holds the whole
    traceback.
    """

    def format(self, record: logging.LogRecord) -> str:
        """Write one record."""
        seconds = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(record.created))
        line: dict[str, Any] = {
            "time": f"{seconds}.{int(record.msecs):03d}Z",
            "level": record.levelname,
            "logger": record.name,
            "pid": record.process,
            "message": record.getMessage(),
        }
        request = current_request()
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

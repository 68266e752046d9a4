"""Audit log: one line for every request that would change the index, whatever its result."""

from __future__ import annotations

import json
import logging
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Annotated, Any

from fastapi import Depends, Request

from aladin_service.observe.logs import CURRENT_REQUEST, FIELDS

_LOG = logging.getLogger("service.audit")

# Longest logged path; a client without a key may send one as long as a request head. An id with its
# escapes fits.
_SHOWN_PATH_CHARS = 2000


@dataclass
class WriteRecord:
    """Data of a write request for the audit log, filled in by its route.

    Attributes:
        target: Name of the collection, images or texts.
        ids: Ids named in the request.
        result: Item IDs by outcome; empty if the write failed.
        generation: Generation of the changed index, or None if the write failed.
    """

    target: str | None = None
    ids: Sequence[str] = ()
    result: dict[str, list[str]] = field(default_factory=dict[str, list[str]])
    generation: int | None = None


async def write_record(request: Request) -> WriteRecord:
    return request.state.write_record


Audit = Annotated[WriteRecord, Depends(write_record)]


def log_write(
    record: WriteRecord,
    *,
    key_name: str | None,
    client: str,
    method: str,
    path: str,
    status: int | None,
) -> None:
    """Write the audit line: names and ids, never a key or the contents of an item.

    The status is None without an answer, because the client disconnected or the service failed.
    """
    outcome = "done"
    if status is None or status >= 500:
        outcome = "failed"
    elif status >= 400:
        outcome = "refused"
    request = CURRENT_REQUEST.get()
    fields: dict[str, Any] = {
        "outcome": outcome,
        "key": key_name,
        "client": client,
        "method": method,
        "path": path[:_SHOWN_PATH_CHARS],
        "status": status,
        "error": None if request is None else request.error_code,
        "target": record.target,
        "ids": list(record.ids),
        **record.result,
        "generation": record.generation,
    }
    _LOG.log(
        logging.INFO if outcome == "done" else logging.WARNING,
        # JSON: an id may contain line breaks, which must not start a new log line.
        "write %s: %s",
        outcome,
        json.dumps({name: value for name, value in fields.items() if value not in (None, [])}),
        extra={FIELDS: fields},
    )

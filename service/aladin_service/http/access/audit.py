"""One line in the log for every request that would change the index, whatever became of it."""

from __future__ import annotations

import json
import logging
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Annotated, Any

from fastapi import Depends, Request

from aladin_service.observe.logs import CURRENT_REQUEST, FIELDS

_LOG = logging.getLogger("service.audit")

# Of a path, which whoever has no key may make as long as a head: an id and its escapes fit.
_SHOWN_PATH_CHARS = 2000


@dataclass
class WriteRecord:
    """What a write was about; its route fills it in as it finds out.

    Attributes:
        target: images or texts.
        ids: that the request names.
        result: ids by what became of them; empty where the write failed.
        generation: of the index that was changed; None where the write failed.
    """

    target: str | None = None
    ids: Sequence[str] = ()
    result: dict[str, list[str]] = field(default_factory=dict[str, list[str]])
    generation: int | None = None


async def write_record(request: Request) -> WriteRecord:
    """Return the record of a request whose route needs the scope "write"."""
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
    """Write the line: names and ids, never a key or what an item contains.

    Args:
        record: as far as the route has filled it in.
        key_name: of the request's key; None without one.
        client: its address.
        method: of the request.
        path: of the request, decoded; a long one is cut.
        status: of the answer; None: there was none, the client hung up or the service failed.
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
        # JSON: an id may hold line breaks, and must not make a line of its own.
        "write %s: %s",
        outcome,
        json.dumps({name: value for name, value in fields.items() if value not in (None, [])}),
        extra={FIELDS: fields},
    )

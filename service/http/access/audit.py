"""One line in the log for every request that would change the index, whatever became of it."""

from __future__ import annotations

import json
import logging
from collections.abc import Sequence
from dataclasses import dataclass, field

from fastapi import Request

_LOG = logging.getLogger("service.audit")


@dataclass
class WriteRecord:
    """What a write was about; its route fills it in as it finds out.

    Attributes:
        action: add or delete.
        target: images or texts.
        ids: that were asked for.
        result: ids by what became of them; empty where the write failed.
        generation: of the index that was changed; None where the write failed.
    """

    action: str | None = None
    target: str | None = None
    ids: Sequence[str] = ()
    result: dict[str, list[str]] = field(default_factory=dict[str, list[str]])
    generation: int | None = None


def write_record(request: Request) -> WriteRecord:
    """Return the record of a request whose route needs the scope "write"."""
    return request.state.write_record


def log_write(
    record: WriteRecord,
    *,
    key_name: str | None,
    client: str,
    request_id: str,
    method: str,
    path: str,
    status: int | None,
) -> None:
    """Write the line. It holds names and ids, never a key or what an item contains.

    Args:
        record: as far as the route has filled it in.
        key_name: of the request's key; None without one.
        client: its address.
        request_id: of the request.
        method: of the request.
        path: of the request, decoded.
        status: of the answer; None: there was none, the client hung up or the service failed.
    """
    outcome = "failed" if status is None or status >= 500 else "refused"
    if status is not None and status < 400:
        outcome = "done"
    facts = {
        "outcome": outcome,
        "status": status,
        "key": key_name,
        "client": client,
        "request_id": request_id,
        "method": method,
        "path": path,
        "action": record.action,
        "target": record.target,
        "ids": list(record.ids),
        **record.result,
        "generation": record.generation,
    }
    level = logging.INFO if outcome == "done" else logging.WARNING
    # JSON: an id may hold line breaks, and must not make a line of its own.
    _LOG.log(level, "write %s", json.dumps(facts), extra=facts)

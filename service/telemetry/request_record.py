"""What is known of the request that is being answered: for its log lines and its trace."""

from __future__ import annotations

from contextvars import ContextVar, Token
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    # The command line sets the log up before it needs any of this.
    from service.work.search_job import Answered, Lane, SearchJob


class SearchRecord(NamedTuple):
    """A search that a request had done.

    Attributes:
        lane: where it waited.
        job: when it came, and what for.
        answered: what became of it.
    """

    lane: Lane
    job: SearchJob
    answered: Answered


@dataclass(slots=True)
class RequestRecord:
    """One request, from its headers to the end of its answer.

    Attributes:
        request_id: also the answer's header.
        trace_id: of its trace, 32 hexadecimal digits; None where there is none.
        error_code: of an answer that is an error.
        searches: that were answered; a request may hold several.
        failed_parts: searches of a request with several that were not; the others were.
    """

    request_id: str
    trace_id: str | None = None
    error_code: str | None = None
    searches: list[SearchRecord] = field(default_factory=list["SearchRecord"])
    failed_parts: int = 0


# Tasks that a request starts see it too; threads do not.
_CURRENT: ContextVar[RequestRecord | None] = ContextVar("request", default=None)


def current_request() -> RequestRecord | None:
    """Return the request that this code runs for; None outside any."""
    return _CURRENT.get()


def begin_request(record: RequestRecord) -> Token[RequestRecord | None]:
    """Say which request this task answers from here on; returns what `end_request` takes."""
    return _CURRENT.set(record)


def end_request(before: Token[RequestRecord | None]) -> None:
    """Say that the request is answered."""
    _CURRENT.reset(before)


def note_search(lane: Lane, job: SearchJob, answered: Answered) -> None:
    """Remember a search for the log line and the trace of the request that asked for it."""
    record = _CURRENT.get()
    if record is not None:
        record.searches.append(SearchRecord(lane, job, answered))

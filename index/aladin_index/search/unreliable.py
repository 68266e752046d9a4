"""What the codes in `unreliable_because` of an answer mean to people."""

from __future__ import annotations

from typing import NamedTuple


class _Reason(NamedTuple):
    """Why probabilities are unreliable, and the remedy of whoever keeps the index, if any."""

    why: str
    remedy: str = ""


_FIT = "aladin calibrate CHECKPOINT DATA --index INDEX fits one to the index"
_REASONS = {
    "other_photos": _Reason(
        "the index's calibration was fitted on other data, to which most of these photos do not "
        "belong",
        _FIT,
    ),
    "no_alignment": _Reason(
        "the index's calibration judges by the scores of both stages, and the second gave none"
    ),
    "several_parts": _Reason("the index's calibration was fitted to queries of one part"),
    "box": _Reason("the index's calibration was fitted to whole photos"),
}


def unreliable_reason(code: str | None, *, remedy: bool = False) -> str:
    """Return the explanation for the `unreliable_because` of an answer.

    Args:
        code: Code of the reason; an unknown code, from a newer service, is returned unchanged.
        remedy: Whether to name the command that helps.
    """
    reason = _REASONS.get(code or "")
    if reason is None:
        return code or "the index's calibration may not judge this query"
    return f"{reason.why}; {reason.remedy}" if remedy and reason.remedy else reason.why

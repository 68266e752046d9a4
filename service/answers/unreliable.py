"""Why the probabilities of an answer are not reliable, in words for people."""

from __future__ import annotations

_REASONS = {
    "weak_calibration": "the index's calibration hardly tells queries that have a match from those "
    "that have none",
    "unknown_text_lengths": "the index's calibration does not record the lengths of the texts that "
    "it was fitted on; aladin calibrate fits it anew",
    "text_length": "the text is shorter or longer than those that the index's calibration was "
    "fitted on",
}


def unreliable_reason(code: str | None) -> str:
    """Return the words for the `unreliable_because` of an answer.

    Args:
        code: the reason; one that is not known, of a newer service, is returned as it is.
    """
    return _REASONS.get(code or "", code or "the index's calibration may not judge this query")

"""Search results as plain text, including why probabilities are not reliable."""

from __future__ import annotations

from collections.abc import Iterator

from aladin_index.search.results import Evidence, SearchAnswer, SearchHit

_REASONS = {
    "weak_calibration": "the index's calibration hardly tells queries that have a match from those "
    "that have none",
    "unknown_text_lengths": "the index's calibration does not record the lengths of the texts that "
    "it was fitted on; aladin calibrate fits it anew",
    "text_length": "the text is shorter or longer than those that the index's calibration was "
    "fitted on",
}


def unreliable_reason(code: str | None) -> str:
    """Return the explanation for the `unreliable_because` of an answer.

    Args:
        code: Code of the reason; an unknown code, from a newer service, is returned unchanged.
    """
    return _REASONS.get(code or "", code or "the index's calibration may not judge this query")


def answer_lines(answer: SearchAnswer, *, filtered: bool = False) -> Iterator[str]:
    """Format an answer as lines: one for each hit, followed by its words if given evidence.

    Where the probabilities are reliable, hits have theirs, and the last line says how likely there
    is a match at all. Where they are not, they are left out, and a last line says so only if a
    least probability was asked for and could not be applied.

    Args:
        answer: Answer of a search.
        filtered: Whether the search had a filter. Where nothing passes it, that is all that is
            said.
    """
    names = " or ".join(repr(name) for name in answer.unknown_fields)
    if names and not answer.hits:
        yield f"no item has a field {names} to filter or sort by"
        return
    if filtered and not answer.hits and answer.match_probability is None:
        yield "nothing passes the filter"
        return
    judged = answer.probabilities_reliable is True
    probability = f"  {'prob.':>5}" if judged else ""
    yield f"{'rank':>4}  {'score':>8}  {'match':>12}  {'align':>13}{probability}  item"
    for hit in answer.hits:
        yield _hit_line(hit, judged=judged)
        for evidence in hit.evidence or ():
            yield _evidence_line(evidence)
    if judged:
        verdict = "; nothing is likely enough" if answer.no_match else ""
        yield f"probability of any match {answer.match_probability:.3f}{verdict}"
    elif "min_probability" in answer.degraded:
        reason = unreliable_reason(answer.unreliable_because)
        yield f"--min-probability was not applied: {reason}"
    if names:
        yield f"no item has a field {names} to sort by: the hits are in the order of relevance"


def _hit_line(hit: SearchHit, *, judged: bool) -> str:
    match = f"{hit.stages.match.score:.3f} #{hit.stages.match.rank}"
    align = hit.stages.align
    aligned = "-" if align is None else f"{align.score:.3f} #{align.rank}"
    probability = "" if not judged or hit.probability is None else f"  {hit.probability:.3f}"
    names = [hit.id]
    if hit.uri is not None and hit.uri != hit.id:
        names.append(hit.uri)
    if hit.text is not None:
        names.append(" ".join(hit.text.split()))
    item = "  ".join(names)
    return f"{hit.rank:>4}  {hit.score:>8.4f}  {match:>12}  {aligned:>13}{probability}  {item}"


def _evidence_line(evidence: Evidence) -> str:
    box = "" if evidence.box is None else "  box " + " ".join(f"{x:.2f}" for x in evidence.box)
    return f"{'':>6}{evidence.score:>8.3f}  {evidence.token}  region {evidence.region}{box}"

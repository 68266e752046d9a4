"""An answer as lines for people."""

from __future__ import annotations

from collections.abc import Iterator

from service.answers.search import Evidence, SearchAnswer, SearchHit


def answer_lines(answer: SearchAnswer, *, filtered: bool = False) -> Iterator[str]:
    """Write an answer as lines: a hit each, its words below it where there is evidence.

    Where the index is calibrated, hits have their probability, and the last line says how likely
    there is a match at all.

    Args:
        answer: of a search.
        filtered: Whether the search had a filter. Where nothing passes it, that is all that is
            said.
    """
    if answer.unknown_fields:
        names = " or ".join(repr(name) for name in answer.unknown_fields)
        yield f"no item has a field {names} to filter by"
        return
    if filtered and not answer.hits and answer.match_probability is None:
        yield "nothing passes the filter"
        return
    judged = answer.match_probability is not None
    probability = f"  {'prob.':>5}" if judged else ""
    yield f"{'rank':>4}  {'score':>8}  {'match':>12}  {'align':>13}{probability}  item"
    for hit in answer.hits:
        yield _hit_line(hit)
        for evidence in hit.evidence or ():
            yield _evidence_line(evidence)
    if judged:
        verdict = "; nothing is likely enough" if answer.no_match else ""
        yield f"probability of any match {answer.match_probability:.3f}{verdict}"


def _hit_line(hit: SearchHit) -> str:
    match = f"{hit.stages.match.score:.3f} #{hit.stages.match.rank}"
    align = hit.stages.align
    aligned = "-" if align is None else f"{align.score:.3f} #{align.rank}"
    probability = "" if hit.probability is None else f"  {hit.probability:.3f}"
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

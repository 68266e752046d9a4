"""Tables and search results for the terminal, and the report of `aladin convert`."""

from __future__ import annotations

import json
import shlex
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from aladin_index.search.whole_words import join_evidence

# For annotations only: `aladin search --url` prints its hits without importing torch and rich.
if TYPE_CHECKING:
    from rich.table import Table

    from aladin_index.search.results import (
        Box,
        Evidence,
        HitTerm,
        SearchAnswer,
        SearchHit,
    )
    from aladin_network.conversion.tensors import ConversionReport
    from aladin_network.scoring.metrics import DirectionMetrics, RetrievalMetrics


class MetricsRow(NamedTuple):
    """One system in a table of metrics.

    Attributes:
        name: Name of the system.
        metrics: Metrics of both directions.
        ms_a_query: Time of a search in ms without the query's encoding, or None if not measured.
    """

    name: str
    metrics: RetrievalMetrics
    ms_a_query: float | None = None


def metrics_table(title: str, rows: Sequence[MetricsRow]) -> Table:
    """Build a table of recalls in percent, median and mean ranks and rsum of several systems."""
    timed = any(row.ms_a_query is not None for row in rows)
    from rich.table import Table

    table = Table(title=title, title_justify="left")
    table.add_column("", no_wrap=True)
    # A header cannot span columns, so its words are spread over the recall columns of the
    # direction.
    for start, end in (("text", "image"), ("image", "text")):
        for words in (f"{start}\nR@1", "to\nR@5", f"{end}\nR@10", "median\nrank", "mean\nrank"):
            table.add_column(words, justify="right")
    table.add_column("\nrsum", justify="right")
    if timed:
        table.add_column("ms a\nquery", justify="right")
    for row in rows:
        cells = [
            row.name,
            *_direction_cells(row.metrics.text_to_image),
            *_direction_cells(row.metrics.image_to_text),
            f"{row.metrics.rsum:.1f}",
        ]
        if timed:
            cells.append("" if row.ms_a_query is None else f"{row.ms_a_query:.1f}")
        table.add_row(*cells)
    return table


def facts_table(facts: Sequence[tuple[str, str]]) -> Table:
    """Build a table of names and values."""
    from rich.table import Table

    table = Table(show_header=False, box=None)
    for name, value in facts:
        table.add_row(name, value)
    return table


def print_table(table: Table, *, stderr: bool = False) -> None:
    """Print a table without truncation, because files are not scrolled sideways."""
    from rich.console import Console

    width = None if Console(stderr=stderr).is_terminal else 132
    Console(stderr=stderr, width=width, highlight=False).print(table)


def _direction_cells(metrics: DirectionMetrics) -> list[str]:
    recalls = (f"{each:.1f}" for each in metrics[:3])
    # Over folds, the median rank is a mean of medians, which may be a fraction.
    return [*recalls, f"{round(metrics.median_rank, 1):g}", f"{metrics.mean_rank:.1f}"]


def conversion_data(report: ConversionReport) -> dict[str, Any]:
    """Return a report as JSON data."""
    return {
        "source": str(report.source),
        "out": str(report.out),
        "taken": [each._asdict() for each in report.taken],
        "left": [each._asdict() for each in report.left],
        "new": list(report.new),
        "seed": report.seed,
    }


def conversion_table(report: ConversionReport) -> Table:
    """Build a table of a report: everything that was skipped, and a summary of the rest."""
    from rich.table import Table

    table = Table(title=str(report.source), title_justify="left")
    table.add_column("", no_wrap=True)
    table.add_column("what")
    table.add_column("shape", no_wrap=True)
    table.add_column("why")
    table.add_row("taken", f"{len(report.taken)} tensors", "", "")
    for left in report.left:
        shape = "" if left.shape is None else " x ".join(map(str, left.shape))
        table.add_row("left", left.source, shape, left.reason)
    for part, count in Counter(name.split(".")[0] for name in report.new).items():
        why = f"not in the file: starts at random, seed {report.seed}"
        table.add_row("new", f"{part}: {count} tensors", "", why)
    return table


# Fields of an index that are named where a filter or a sort names none of them.
_NAMED_FIELDS = 20

# Why an answer has no probabilities, by the code in `unreliable_because`.
_REASONS = {
    "other_photos": "the index's calibration was fitted on other data, to which most of these "
    "photos do not belong; aladin calibrate CHECKPOINT DATA --index INDEX fits one to the index",
    "no_alignment": "the index's calibration judges by the scores of both stages, and the second "
    "gave none",
    "several_terms": "the index's calibration was fitted to queries of one term",
    "box": "the index's calibration was fitted to whole photos",
}


def unreliable_reason(code: str | None) -> str:
    """Explain why an answer has no probabilities; a code of a newer service stands for itself."""
    return _REASONS.get(code or "", code or "the index's calibration may not judge this query")


# What was asked for and not applied, by its code in `degraded`.
_NOT_APPLIED = {
    "explain": "--explain was not applied: the alignment of the index's model was not trained",
    "lexical": "--lexical was not applied: an index in a vector database has no words",
    "stack": "--stack was not applied: an index in a vector database has no stacks",
}


def answer_lines(
    answer: SearchAnswer, known: Sequence[str] = (), *, filtered: bool = False
) -> Iterator[str]:
    """Format an answer as lines: one for each hit, followed by its evidence if there is any.

    Where the probabilities are reliable, hits have theirs, and the last line says how likely there
    is a match at all. Where they are not, they are left out, and a last line says so only if a
    least probability was asked for and could not be applied.
    """
    unknown = " or ".join(map(repr, answer.unknown_fields))
    if unknown and not answer.hits:
        wanted = "filter" if filtered else "sort"
        yield f"no item has a field {unknown} to {wanted} by{_listed(known)}"
    elif (filtered or answer.read) and not answer.hits and answer.no_match is None:
        yield "nothing passes the filter"
        yield from _notes(answer)
    else:
        yield from _hits_lines(answer)
        yield from _notes(answer)
        if unknown:
            yield (
                f"no item has a field {unknown} to sort by: the hits are in the order of relevance"
                f"{_listed(known)}"
            )


def _listed(known: Sequence[str]) -> str:
    """List the fields of an index, up to a number, as the end of a sentence."""
    more = f" and {len(known) - _NAMED_FIELDS} more" if len(known) > _NAMED_FIELDS else ""
    return f"; there are {', '.join(known[:_NAMED_FIELDS])}{more}" if known else ""


def _hits_lines(answer: SearchAnswer) -> Iterator[str]:
    judged = answer.probabilities_reliable is True
    probability = f"  {'prob.':>5}" if judged else ""
    yield f"{'rank':>4}  {'score':>8}  {'match':>12}  {'align':>13}{probability}  item"
    for hit in answer.hits:
        yield _hit_line(hit, judged=judged)
        if hit.stack is not None:
            yield f"{'':>6}the best of {hit.stack.count} that belong together"
        for found in hit.stages.lexical or ():
            yield f"{'':>6}{', '.join(found.words)} in {found.field}"
        yield from _evidence_lines(hit)
        for term, scores in zip(answer.terms or (), hit.terms or (), strict=True):
            of = "" if term.box is None else "part of "
            asked = term.text or f"{of}{term.id or 'photo'}"
            yield f"{'':>6}{scores.score:>8.3f}  {term.role} {asked}"
            for line in _evidence_lines(scores):
                yield f"  {line}"


def _notes(answer: SearchAnswer) -> Iterator[str]:
    if answer.no_match:
        yield "nothing is likely to match"
    reason = unreliable_reason(answer.unreliable_because)
    notes = {"min_probability": f"--min-probability was not applied: {reason}"} | _NOT_APPLIED
    yield from (note for code, note in notes.items() if code in answer.degraded)
    if "language" in answer.warnings:
        yield "the model's vocabulary does not have these words: hits are next to random"
    for each in answer.read:
        found = json.dumps(each.filter, ensure_ascii=False)
        how = f"--unread {shlex.quote(each.words)} leaves the words"
        yield f"{each.words!r} was read as a filter, {found}; {how}"
    for field, facet in (answer.facets or {}).items():
        counts = ", ".join(f"{each.value} {each.count}" for each in facet.values)
        yield f"{field}, among the {facet.among:,} nearest: {counts or 'no values'}"
    if answer.suggestion:
        wanted, *negated = (term.text for term in answer.suggestion)
        excluded = " ".join(f"--not {shlex.quote(each)}" for each in negated)
        yield f"to exclude what the words negate: {shlex.quote(wanted)} {excluded}"


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


def _whole_words(evidence: Sequence[Evidence]) -> list[Evidence]:
    """Join the tokens of each word; an answer contains the tokens, and not the text of a query."""
    text = [" "] * max((entry.end for entry in evidence), default=0)
    for entry in evidence:
        text[entry.start : entry.end] = entry.token
    return join_evidence("".join(text), evidence)


def _evidence_lines(scored: SearchHit | HitTerm) -> Iterator[str]:
    """Format where a box was found, and the best region of each word or region of the query."""
    if scored.found is not None:
        yield f"{'':>6}found in{_box(scored.found)}"
    for word in _whole_words(scored.evidence or ()):
        yield f"{'':>6}{word.score:>8.3f}  {word.token}  region {word.region}{_box(word.box)}"
    for each in scored.region_evidence or ():
        asked = f"region {each.query_region} of the query"
        yield f"{'':>6}{each.score:>8.3f}  {asked}  region {each.region}{_box(each.box)}"


def _box(box: Box | None) -> str:
    return "" if box is None else "  box " + " ".join(f"{edge:.2f}" for edge in box)

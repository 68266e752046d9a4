"""Relevance judgements and runs as TREC's tools read them, and the qrels of BEIR.

    QUERY 0 DOCUMENT RELEVANCE             a line of qrels
    QUERY Q0 DOCUMENT RANK SCORE TAG       a line of a run

The columns are separated by white space, so that an id with white space is written with percent
escapes: ``a b`` as ``a%20b``, ``%`` as ``%25``. BEIR's qrels have three columns with tabs: query,
document and relevance, after a header.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple
from urllib.parse import quote, unquote

import numpy as np

from aladin_network.errors import DataError, InputError
from aladin_network.files import atomic_file
from aladin_training.data.fields import Place

_HEADER = ("query-id", "corpus-id", "score")
_SPACE = re.compile(r"[\s%]")


class Qrel(NamedTuple):
    """A judgement.

    Attributes:
        place: Place of the line, named in errors.
        query: Id of the query.
        document: Id of the document.
        relevance: Grade; relevant above 0.
    """

    place: Place
    query: str
    document: str
    relevance: float


class RankedQuery(NamedTuple):
    """The results of one query.

    Attributes:
        query: Id of the query.
        documents: Ids of the results, best first.
        scores: Score of each result, not ascending.
    """

    query: str
    documents: Sequence[str]
    scores: Sequence[float]


def read_qrels(file: Path) -> Iterator[Qrel]:
    """Read TREC's or BEIR's qrels; the number of columns of the first line tells which.

    Raises:
        DataError: If the file cannot be read, or a line has other columns.
    """
    try:
        lines = file.read_text(encoding="utf-8-sig").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise DataError(file, None, f"cannot be read ({error})") from error
    columns = 3 if lines and len(lines[0].split("\t")) == 3 else 4
    for number, line in enumerate(lines, start=1):
        cells = line.split("\t") if columns == 3 else line.split()
        place = Place(file, number)
        if not line.strip() or (columns == 3 and number == 1 and tuple(cells) == _HEADER):
            continue
        if len(cells) != columns:
            raise place.error(f"expected {columns} columns, got {len(cells)}")
        query, document, relevance = (cells[0], *cells[-2:])
        if columns == 4:
            query, document = unquote(query), unquote(document)
        try:
            grade = float(relevance)
        except ValueError:
            grade = math.nan
        if not math.isfinite(grade):
            raise place.error(f"relevance: expected a number, got {relevance!r}")
        yield Qrel(place, query, document, grade)


def write_qrels(file: Path, pairs: Iterable[tuple[str, str]]) -> None:
    """Write TREC qrels of relevance 1.

    Args:
        file: File to write; an existing one is replaced.
        pairs: Ids of a query and of a document that is relevant to it.
    """
    with atomic_file(file) as part, part.open("w", encoding="utf-8", newline="\n") as target:
        for query, document in pairs:
            target.write(f"{_column(query)} 0 {_column(document)} 1\n")


def write_run(file: Path, queries: Iterable[RankedQuery], tag: str) -> None:
    """Write a TREC run.

    The tools order a run by its scores, which trec_eval reads in single precision, and break ties
    by ids. Scores are therefore written in single precision, and one that does not lie below its
    predecessor's is lowered to the next smaller number: the order in the file is that of any tool.

    Args:
        file: File to write; an existing one is replaced.
        queries: Results of each query.
        tag: Name of the run, without white space.

    Raises:
        InputError: If the tag has white space.
    """
    if not tag or _SPACE.search(tag):
        raise InputError(f"tag: expected a name without white space, got {tag!r}")
    with atomic_file(file) as part, part.open("w", encoding="utf-8", newline="\n") as target:
        for query, documents, scores in queries:
            name = _column(query)
            falling = falling_scores(scores)
            for rank, (document, score) in enumerate(zip(documents, falling, strict=True), 1):
                target.write(f"{name} Q0 {_column(document)} {rank} {score!r} {tag}\n")


def falling_scores(scores: Sequence[float]) -> list[float]:
    """Return scores in single precision, each below its predecessor.

    Args:
        scores: Finite scores, best first.

    Returns:
        The rounded scores, with as many ties broken as there are.
    """
    falling: list[float] = []
    last = np.float32(np.inf)
    for score in np.asarray(scores, dtype=np.float32):
        last = score if score < last else np.nextafter(last, np.float32(-np.inf))
        falling.append(float(last))
    return falling


def _column(identity: str) -> str:
    if not _SPACE.search(identity):
        return identity
    return _SPACE.sub(lambda found: quote(found.group(), safe=""), identity)

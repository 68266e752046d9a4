"""The results of an evaluation as TREC's qrels and runs, for ranx, ir-measures and trec_eval.

The recalls that `aladin evaluate` prints are ``Success@k`` (``hit_rate@k``) of these files: the
share of queries with a right answer among the first k. Ties count against the right answer here,
which the order in the files preserves.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
from jaxtyping import Bool, Float
from numpy.typing import NDArray

from aladin_index.search.results import SearchHit
from aladin_network.errors import InputError
from aladin_network.scoring.fusion import Fusion
from aladin_network.types import DIRECTIONS, Direction
from aladin_training.data import Record
from aladin_training.data.trec import RankedQuery, write_qrels, write_run
from aladin_training.evaluation import ExhaustiveEvaluation

# The recalls are of the first 10.
MIN_DEPTH = 10
DEFAULT_DEPTH = 100


class TrecFiles:
    """Writes ``DIRECTION.qrels``, and ``DIRECTION.SCORE.run`` for each score."""

    def __init__(self, folder: Path, depth: int = DEFAULT_DEPTH) -> None:
        """Create the folder.

        Args:
            folder: Folder of the files; existing ones of the same names are replaced.
            depth: Number of results of each query.

        Raises:
            InputError: If the folder cannot be created, or the depth is below 10.
        """
        if depth < MIN_DEPTH:
            raise InputError(f"depth: expected at least {MIN_DEPTH} results, got {depth}")
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise InputError(f"{folder}: {error.strerror or 'cannot be created'}") from error
        self._folder = folder
        self._depth = depth

    def write_exhaustive(self, records: Sequence[Record], evaluation: ExhaustiveEvaluation) -> None:
        """Write the qrels, and the runs of each score of all pairs and of the fused one.

        Args:
            records: Photos that were evaluated.
            evaluation: Their scores.
        """
        photos, texts = [record.id for record in records], _text_ids(records)
        pairs = [(text, record.id) for record in records for text in record.caption_ids]
        of_text = evaluation.image_of_text.cpu().numpy()
        right = np.arange(len(photos))[:, None] == of_text  # (images, texts)
        captioned = [record.id for record in records if record.captions]
        for direction in DIRECTIONS:
            by_text = direction == "text_to_image"
            shown = pairs if by_text else [(photo, text) for text, photo in pairs]
            write_qrels(self._folder / f"{direction}.qrels", shown)
            for name, scores in _scores(evaluation, direction):
                queries = texts if by_text else photos
                items = photos if by_text else texts
                values, is_right = (scores.T, right.T) if by_text else (scores, right)
                ranked = _ranked(queries, items, values, is_right, self._depth)
                asked = set(texts) if by_text else set(captioned)
                self._write(direction, name, (each for each in ranked if each.query in asked))

    def write_served(
        self,
        records: Sequence[Record],
        direction: Direction,
        answers: Sequence[Sequence[SearchHit]],
    ) -> None:
        """Write the run of the searches of an index, ``two_stage``.

        Args:
            records: Photos that were evaluated.
            direction: Direction of the searches.
            answers: Candidates of each query, best first: of each caption, or of each photo that
                has one, in the order of the records.
        """
        captions = {record.id: set(record.caption_ids) for record in records if record.captions}
        if direction == "text_to_image":
            asked = [(text, {photo}) for photo, texts in captions.items() for text in texts]
            order = {text: place for place, text in enumerate(_text_ids(records))}
            asked.sort(key=lambda each: order[each[0]])
        else:
            asked = list(captions.items())
        self._write(direction, "two_stage", _served(asked, answers, self._depth))

    def _write(self, direction: Direction, name: str, queries: Iterator[RankedQuery]) -> None:
        write_run(self._folder / f"{direction}.{name}.run", queries, name)


def _text_ids(records: Sequence[Record]) -> list[str]:
    return [text for record in records for text in record.caption_ids]


def _scores(
    evaluation: ExhaustiveEvaluation, direction: Direction
) -> Iterator[tuple[str, Float[NDArray[np.float32], "images texts"]]]:
    """Yield each score of all pairs, as `ExhaustiveEvaluation.ranks` ranks them."""
    for name, scores in evaluation.scores.items():
        yield name, scores.cpu().numpy()
    fusion: Fusion = evaluation.fusion
    fused = fusion.of(direction).combine(evaluation.alignment_scores, evaluation.matching_scores)
    yield "fused", fused.cpu().numpy()


def _ranked(
    queries: Sequence[str],
    items: Sequence[str],
    scores: Float[NDArray[np.float32], "queries items"],
    right: Bool[NDArray[np.bool_], "queries items"],
    depth: int,
) -> Iterator[RankedQuery]:
    """Order the items of each query by score; of equal ones, wrong ones come first."""
    for query, values, is_right in zip(queries, scores, right, strict=True):
        if not np.isfinite(values).all():
            raise InputError(f"query {query!r}: expected finite scores, found NaN or infinity")
        best = np.lexsort((is_right, -values))[:depth]
        found: list[int] = best.tolist()
        yield RankedQuery(query, [items[row] for row in found], values[best].tolist())


def _served(
    asked: Sequence[tuple[str, set[str]]], answers: Sequence[Sequence[SearchHit]], depth: int
) -> Iterator[RankedQuery]:
    for (query, right), hits in zip(asked, answers, strict=True):
        ordered = sorted(hits, key=lambda hit: (-hit.score, hit.id in right))[:depth]
        yield RankedQuery(query, [hit.id for hit in ordered], [hit.score for hit in ordered])

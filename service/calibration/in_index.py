"""Queries that search an index as users' do, whether or not it has the split's own items."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from numpy.typing import NDArray

from aladin.calibration.examples import AskedQuery, candidates_kept
from aladin.calibration.scores import CandidateScores
from aladin.encoding import Encoding
from aladin.progress import Progress
from aladin.scoring import alignment_scores, matching_scores
from index.backend import SearchSide, SecondStageQuery
from index.modality import Modality
from service.calibration.among_split import asked_query
from service.calibration.encoded_split import EncodedSplit


def ask_images(
    side: SearchSide, split: EncodedSplit, num_candidates: int, progress: Progress
) -> list[AskedQuery]:
    """Ask an index's images for the photo of every caption.

    A photo that the index has is found by its id, and what the index stores of it is scored; one
    that it does not have is scored directly, as if it were there.

    Args:
        side: the images.
        split: whose captions ask.
        num_candidates: of a search's first stage.
        progress: advanced caption by caption.
    """
    ids = [record.id for record in split.records]
    direction = _Direction(side, "text", split.images, ids, num_candidates)
    asked: list[AskedQuery] = []
    progress.start(split.texts.size, "captions that ask")
    for text, photo in enumerate(split.photo_of_text.tolist()):
        query = split.texts.rows(slice(text, text + 1))
        asked.append(direction.ask(photo, query, np.array([photo])))
        progress.advance()
    return asked


def ask_texts(
    side: SearchSide, split: EncodedSplit, num_candidates: int, progress: Progress
) -> list[AskedQuery]:
    """Ask an index's texts for the captions of every photo; see `ask_images`.

    Args:
        side: the texts.
        split: whose photos ask.
        num_candidates: of a search's first stage.
        progress: advanced photo by photo.
    """
    direction = _Direction(side, "image", split.texts, split.caption_ids, num_candidates)
    asked: list[AskedQuery] = []
    progress.start(split.images.size, "photos that ask")
    for photo in range(split.images.size):
        query = split.images.rows(slice(photo, photo + 1))
        asked.append(direction.ask(photo, query, np.flatnonzero(split.photo_of_text == photo)))
        progress.advance()
    return asked


class _Direction:
    """Queries of one modality, and the side of an index that they search."""

    def __init__(
        self,
        side: SearchSide,
        modality: Modality,
        answers: Encoding,
        ids: Sequence[str],
        num_candidates: int,
    ) -> None:
        """Look up which answers the side has.

        Args:
            side: that is searched.
            modality: of the queries.
            answers: the split's own items of the other modality.
            ids: theirs.
            num_candidates: of a search's first stage.
        """
        self._side = side
        self._modality: Modality = modality
        self._answers = answers
        self._num_candidates = num_candidates
        found = side.items.by_ids(ids)
        # (answers,) rows in the index; -1 where it does not have them.
        self._rows = np.array([-1 if item is None else item.row for item in found], dtype=np.int64)

    def ask(self, photo: int, query: Encoding, right: NDArray[np.int64]) -> AskedQuery:
        """Search once.

        Args:
            photo: number of the photo that asks, or whose caption asks.
            query: one encoded item.
            right: places of its right answers among the split's own.
        """
        count = candidates_kept(self._num_candidates, len(right))
        rows_of_right = self._rows[right]
        stored = self._stored(query, count)
        missing = self._missing(query, right[rows_of_right < 0])
        there = np.concatenate([rows_of_right[rows_of_right >= 0], missing.rows])
        scores = stored.joined(missing)
        return asked_query(photo, scores, np.isin(scores.rows, there), self._num_candidates)

    def _stored(self, query: Encoding, count: int) -> CandidateScores:
        """Score what the first stage finds in the index."""
        side = self._side
        tokens = query.item_tokens(0)
        second_stage = SecondStageQuery(tokens, self._modality) if side.has_tokens else None
        rows, match, _ = side.order(query.embedding[0].numpy(), count, count, second_stage)
        align = None if second_stage is None else side.align(tokens, self._modality, rows)
        return CandidateScores(rows, match, align, self._words(query, side.lengths(rows)))

    def _missing(self, query: Encoding, places: NDArray[np.int64]) -> CandidateScores:
        """Score answers that the index does not have; their rows are below 0."""
        answers = self._answers.rows(torch.from_numpy(places))
        images, texts = (answers, query) if self._modality == "text" else (query, answers)
        align = alignment_scores(images, texts) if self._side.has_tokens else None
        return CandidateScores(
            rows=-1 - places,
            match=matching_scores(images, texts).numpy().reshape(-1),
            align=None if align is None else align.numpy().reshape(-1),
            words=self._words(query, answers.mask.sum(dim=1).numpy()),
        )

    def _words(self, query: Encoding, lengths: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the words of each pair's text, given the tokens of the items."""
        if self._modality == "text":
            return np.full(len(lengths), int(query.mask.sum()))
        # Of texts that the index has no tokens of, it cannot tell the words either.
        return lengths if self._side.has_tokens else np.zeros_like(lengths)

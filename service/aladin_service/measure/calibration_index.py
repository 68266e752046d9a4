"""Queries of a split that search an index, and the right answers that it does not contain."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from numpy.typing import NDArray

from aladin_index.ann.corrected import query_vectors
from aladin_index.search.backend import Collection, SecondStageQuery
from aladin_network.calibration.examples import AskedQuery, candidates_kept
from aladin_network.calibration.features import CandidateScores
from aladin_network.scoring.correction import EncodedItems, HubCorrection
from aladin_network.scoring.scores import EncodedBatch, alignment_scores, matching_scores
from aladin_network.types import Modality, Progress
from aladin_service.measure.calibration_split import EncodedSplit, asked_query
from aladin_service.measure.unmatched_queries import UnmatchedQueries


def ask_images(
    side: Collection,
    split: EncodedSplit,
    num_candidates: int,
    progress: Progress,
    correction: HubCorrection | None = None,
    unmatched: UnmatchedQueries | None = None,
) -> list[AskedQuery]:
    """Search an index's images for the photo of every caption.

    A photo that the index has is found by its id, and what the index stores of it is scored; one
    that it does not have is scored directly, as if it were there.

    Args:
        side: Collection of the images.
        split: Split whose captions are the queries.
        num_candidates: Number of candidates of a search's first stage.
        progress: Progress, advanced caption by caption.
        correction: Hubness correction of the index, or None.
        unmatched: Further queries, which nothing matches, or None.
    """
    ids = [record.id for record in split.records]
    direction = _Direction(side, "text", split.images, ids, num_candidates, correction)
    asked: list[AskedQuery] = []
    progress.start(split.texts.size, "captions that ask")
    for text, photo in enumerate(split.photo_of_text.tolist()):
        query = split.texts.rows(slice(text, text + 1))
        asked.append(direction.ask(photo, query, np.flatnonzero(split.right[text])))
        progress.advance()
    if unmatched is None:
        return asked
    progress.start(len(unmatched.texts), "texts that nothing matches")
    for row, (photo, kind) in enumerate(
        zip(unmatched.photos.tolist(), unmatched.kinds, strict=True)
    ):
        query = unmatched.encoded.rows(slice(row, row + 1))
        of_query = direction.ask(photo, query, np.empty(0, dtype=np.int64))
        asked.append(of_query._replace(has_match=False, kind=kind))
        progress.advance()
    return asked


def ask_texts(
    side: Collection,
    split: EncodedSplit,
    num_candidates: int,
    progress: Progress,
    correction: HubCorrection | None = None,
) -> list[AskedQuery]:
    """Search an index's texts for the captions of every photo; see `ask_images`.

    Args:
        side: Collection of the texts.
        split: Split whose photos are the queries.
        num_candidates: Number of candidates of a search's first stage.
        progress: Progress, advanced photo by photo.
        correction: Hubness correction of the index, or None.
    """
    ids = split.caption_ids
    direction = _Direction(side, "image", split.texts, ids, num_candidates, correction)
    asked: list[AskedQuery] = []
    progress.start(split.images.size, "photos that ask")
    for photo in range(split.images.size):
        query = split.images.rows(slice(photo, photo + 1))
        asked.append(direction.ask(photo, query, np.flatnonzero(split.right[:, photo])))
        progress.advance()
    return asked


class _Direction:
    """Queries of one modality, and the collection of an index that they search."""

    def __init__(
        self,
        side: Collection,
        modality: Modality,
        answers: EncodedBatch,
        ids: Sequence[str],
        num_candidates: int,
        correction: HubCorrection | None,
    ) -> None:
        """Look up which answers the collection contains.

        Args:
            side: Collection to be searched.
            modality: Modality of the queries.
            answers: The split's own items of the other modality.
            ids: IDs of these items.
            num_candidates: Number of candidates of a search's first stage.
            correction: Hubness correction of the index, or None.
        """
        self._biases = np.zeros((answers.size, 2), dtype=np.float32)
        if correction is not None:
            items = EncodedItems.of(answers.arrays())
            self._biases = correction.biases(side.target, items)
        self._side = side
        self._modality: Modality = modality
        self._answers = answers
        self._num_candidates = num_candidates
        found = side.items.by_ids(ids)
        # (answers,) rows in the index; -1 for answers that it does not contain.
        self._rows = np.array([-1 if item is None else item.row for item in found], dtype=np.int64)

    def ask(self, photo: int, query: EncodedBatch, right: NDArray[np.int64]) -> AskedQuery:
        """Search once.

        Args:
            photo: Number of the photo that is the query, or whose caption is.
            query: One encoded item.
            right: Positions of the right answers among the split's own items.
        """
        count = candidates_kept(self._num_candidates, len(right))
        rows_of_right = self._rows[right]
        stored = self._stored(query, count)
        scores, there = stored, rows_of_right
        if (rows_of_right < 0).any():
            missing = self._missing(query, right[rows_of_right < 0])
            there = np.concatenate([rows_of_right[rows_of_right >= 0], missing.rows])
            scores = stored.joined(missing)
        asked = asked_query(photo, scores, np.isin(scores.rows, there), self._num_candidates)
        return asked._replace(embedding=query.embedding[0].numpy())

    def _stored(self, query: EncodedBatch, count: int) -> CandidateScores:
        """Score the candidates that the first stage finds in the index."""
        side = self._side
        tokens = query.item_tokens(0).numpy()
        second_stage = SecondStageQuery(tokens, self._modality) if side.has_tokens else None
        vector = query_vectors(query.embedding[0].numpy(), side.entry.vector_dim)
        rows, match, *_ = side.order(vector, count, count, second_stage)
        align = None if second_stage is None else side.align(tokens, self._modality, rows)
        return CandidateScores(rows, match, align, self._words(query, side.lengths(rows)))

    def _missing(self, query: EncodedBatch, places: NDArray[np.int64]) -> CandidateScores:
        """Score answers that the index does not contain; their rows are negative."""
        answers = self._answers.rows(torch.from_numpy(places))
        images, texts = (answers, query) if self._modality == "text" else (query, answers)
        align = alignment_scores(images, texts) if self._side.has_tokens else None
        biases = self._biases[places]
        counts = int(query.mask.sum()) if self._modality == "text" else 1
        return CandidateScores(
            rows=-1 - places,
            match=matching_scores(images, texts).numpy().reshape(-1) - biases[:, 0],
            align=None if align is None else align.numpy().reshape(-1) - biases[:, 1] * counts,
            words=self._words(query, answers.mask.sum(dim=1).numpy()),
        )

    def _words(self, query: EncodedBatch, lengths: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the number of words of each pair's text, given the token counts of the items."""
        if self._modality == "text":
            return np.full(len(lengths), int(query.mask.sum()))
        # If the index has no tokens of the texts, the number of words is unknown as well.
        return lengths if self._side.has_tokens else np.zeros_like(lengths)

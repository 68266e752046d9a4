"""Queries of a split that search its own items, or those of an index, with their right answers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray

from aladin_index.search.collection import Collection, FirstStageQuery, SecondStageQuery
from aladin_network.calibration.fit import AskedQuery, candidates_kept
from aladin_network.calibration.judging import CandidateScores
from aladin_network.errors import InputError
from aladin_network.model import AladinModel
from aladin_network.scoring.hub_correction import EncodedItems, HubCorrection
from aladin_network.scoring.hub_correction_fit import TARGET_OF, corrected
from aladin_network.scoring.scores import EncodedBatch, alignment_scores, matching_scores
from aladin_network.types import Direction, Modality, Progress
from aladin_service.measure.query_texts import RightAnswers, TextQueries
from aladin_training.data import Record
from aladin_training.data.regions import RegionStore
from aladin_training.evaluation import encode_records


@dataclass(frozen=True, kw_only=True)
class EncodedSplit:
    """Photos of a split that have a caption, and their captions, encoded like user queries.

    Attributes:
        records: The photos.
        images: Encodings of the photos, in the same order.
        captions: The captions, photo by photo; more photos than a caption's own may be right.
        caption_ids: IDs of the captions in an index of the same data.
    """

    records: Sequence[Record]
    images: EncodedBatch
    captions: TextQueries
    caption_ids: Sequence[str]


def encode_split(
    model: AladinModel,
    records: Sequence[Record],
    progress: Progress,
    regions: RegionStore | None = None,
    right_answers: RightAnswers | None = None,
) -> EncodedSplit:
    """Encode the photos that have a caption, and their captions.

    Without `right_answers`, a caption is right for its own photo only.
    """
    asking = [record for record in records if record.captions]
    if not asking:
        raise InputError(
            f"calibration: expected photos with captions, found {len(records)} without"
        )
    images, texts = encode_records(model, asking, progress, regions)
    photo_of_text = np.repeat(np.arange(len(asking)), [len(record.captions) for record in asking])
    right = photo_of_text[:, np.newaxis] == np.arange(len(asking))
    if right_answers is not None:
        captions = [caption for record in asking for caption in record.captions]
        right |= right_answers(captions, asking)
    return EncodedSplit(
        records=asking,
        images=images,
        captions=TextQueries(texts, right, photo_of_text),
        caption_ids=[each for record in asking for each in record.caption_ids],
    )


@torch.inference_mode()
def ask_split(
    model: AladinModel,
    images: EncodedBatch,
    texts: TextQueries,
    direction: Direction,
    num_candidates: int,
    correction: HubCorrection | None = None,
    *,
    is_aligned: bool = True,
) -> list[AskedQuery]:
    """Ask the photos or the texts of a split, by the direction, for those of the other kind."""
    match, align = (
        model.scores(name, images, texts.encoded).float() for name in ("matching", "alignment")
    )
    words = texts.encoded.mask.sum(dim=1).numpy()
    if correction is not None:
        target = TARGET_OF[direction]
        items = images if target == "images" else texts.encoded
        biases = correction.biases(target, EncodedItems.of(items.arrays()))
        scored = corrected(match, align, direction, biases, words)
        match, align = scored.match, scored.align
    asked: list[AskedQuery] = []
    by_text = direction == "text_to_image"
    for row in range(len(words) if by_text else images.size):
        pairs = (slice(None), row) if by_text else row
        count = len(match) if by_text else len(words)
        scores = CandidateScores(
            rows=np.arange(count),
            match=match[pairs].numpy(),
            align=align[pairs].numpy() if is_aligned else None,
            words=np.full(count, words[row]) if by_text else words,
        )
        right = texts.right[row] if by_text else texts.right[:, row]
        group = int(texts.groups[row]) if by_text else row
        query = _asked(group, scores, right, num_candidates)
        asked.append(query._replace(is_short=by_text and texts.is_short))
    return asked


def _asked(
    group: int, scores: CandidateScores, right: NDArray[np.bool_], num_candidates: int
) -> AskedQuery:
    """Keep the candidates of the first stage, with the right answers and without them."""
    count = candidates_kept(num_candidates, int(right.sum()))
    best = np.argsort(-scores.match, kind="stable")[:count]
    return AskedQuery(group, scores.take(best), right[best], has_match=bool(right.any()))


class AskedCollection:
    """A collection of an index that a split's queries of the other kind search.

    A right answer that the index has is found by its id, and what the index stores of it is scored;
    one that it does not have is scored directly, as if it were there.
    """

    def __init__(
        self,
        collection: Collection,
        answers: EncodedBatch,
        ids: Sequence[str],
        num_candidates: int,
        correction: HubCorrection | None,
        *,
        is_aligned: bool,
    ) -> None:
        self._is_aligned = is_aligned and collection.has_tokens
        self._biases = np.zeros((answers.size, 2), dtype=np.float32)
        if correction is not None:
            items = EncodedItems.of(answers.arrays())
            self._biases = correction.biases(collection.target, items)
        self._collection = collection
        self._modality: Modality = "text" if collection.target == "images" else "image"
        self._answers = answers
        self._num_candidates = num_candidates
        found = collection.items.by_ids(ids)
        # (answers,) rows in the index; -1 for answers that it does not contain.
        self._rows = np.array([-1 if item is None else item.row for item in found], dtype=np.int64)

    def ask(
        self,
        queries: EncodedBatch,
        right: NDArray[np.bool_],
        groups: NDArray[np.int64],
        progress: Progress,
    ) -> list[AskedQuery]:
        """Search once for each query; `right` is (queries, answers) bool."""
        progress.start(queries.size, "queries of the index")
        asked: list[AskedQuery] = []
        for row in range(queries.size):
            query = queries.rows(slice(row, row + 1))
            asked.append(self._ask(int(groups[row]), query, np.flatnonzero(right[row])))
            progress.advance()
        return asked

    def _ask(self, group: int, query: EncodedBatch, right: NDArray[np.int64]) -> AskedQuery:
        rows = self._rows[right]
        scores = self._stored(query, candidates_kept(self._num_candidates, len(right)))
        if (rows < 0).any():
            missing = self._missing(query, right[rows < 0])
            rows = np.concatenate([rows[rows >= 0], missing.rows])
            scores = scores.joined(missing)
        asked = _asked(group, scores, np.isin(scores.rows, rows), self._num_candidates)
        return asked._replace(has_match=len(right) > 0)

    def _stored(self, query: EncodedBatch, count: int) -> CandidateScores:
        """Score the candidates that the first stage finds in the index."""
        collection = self._collection
        tokens = query.item_tokens(0).numpy()
        second_stage = SecondStageQuery(tokens, self._modality) if self._is_aligned else None
        embedding = query.embedding[0].numpy()
        rows, match, *_ = collection.order(FirstStageQuery(embedding, count, count, second_stage))
        align = None if second_stage is None else collection.align(tokens, self._modality, rows)
        return CandidateScores(rows, match, align, self._words(query, collection.lengths(rows)))

    def _missing(self, query: EncodedBatch, places: NDArray[np.int64]) -> CandidateScores:
        """Score answers that the index does not contain; their rows are negative."""
        answers = self._answers.rows(torch.from_numpy(places))
        images, texts = (answers, query) if self._modality == "text" else (query, answers)
        align = alignment_scores(images, texts) if self._is_aligned else None
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
        return lengths if self._collection.has_tokens else np.zeros_like(lengths)

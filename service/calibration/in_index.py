"""Queries that search an index as users' do, whether or not it has the split's own items."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import torch
from numpy.typing import NDArray

from aladin.calibration.examples import AskedQuery, candidates_kept
from aladin.calibration.scores import CandidateScores
from aladin.encoding import Encoding
from aladin.progress import Progress
from aladin.scoring import alignment_scores, matching_scores
from index.live_side import LiveSide
from service.calibration.among_split import asked_query
from service.calibration.encoded_split import EncodedSplit


def ask_images(
    side: LiveSide, split: EncodedSplit, num_candidates: int, progress: Progress
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
    rows = _rows_of(side, [record.id for record in split.records])
    words = split.words
    asked: list[AskedQuery] = []
    progress.start(split.texts.size, "captions that ask")
    for text, photo in enumerate(split.photo_of_text.tolist()):
        query = split.texts.rows(slice(text, text + 1))

        def align(found: NDArray[np.int64], query: Encoding = query) -> NDArray[np.float32]:
            return side.align(query.item_tokens(0), "text", found)

        right = np.array([photo])
        candidates = _candidates(side, query, candidates_kept(num_candidates, 1), align)
        missing = right[rows[right] < 0]
        images = split.images.rows(torch.from_numpy(missing))
        added = CandidateScores(
            rows=-1 - missing,
            match=matching_scores(images, query)[:, 0].numpy(),
            align=alignment_scores(images, query)[:, 0].numpy() if side.has_tokens else None,
            words=missing,
        )
        scores = _joined(candidates, added)
        scores = scores._replace(words=np.full(len(scores.rows), words[text]))
        asked.append(_asked(photo, scores, rows[right], added.rows, num_candidates))
        progress.advance()
    return asked


def ask_texts(
    side: LiveSide, split: EncodedSplit, num_candidates: int, progress: Progress
) -> list[AskedQuery]:
    """Ask an index's texts for the captions of every photo; see `ask_images`.

    Args:
        side: the texts.
        split: whose photos ask.
        num_candidates: of a search's first stage.
        progress: advanced photo by photo.
    """
    rows = _rows_of(side, split.caption_ids)
    words = split.words if side.has_tokens else np.zeros_like(split.words)
    asked: list[AskedQuery] = []
    progress.start(split.images.size, "photos that ask")
    for photo in range(split.images.size):
        query = split.images.rows(slice(photo, photo + 1))

        def align(found: NDArray[np.int64], query: Encoding = query) -> NDArray[np.float32]:
            return side.align(query.item_tokens(0), "image", found)

        right = np.flatnonzero(split.photo_of_text == photo)
        candidates = _candidates(side, query, candidates_kept(num_candidates, len(right)), align)
        missing = right[rows[right] < 0]
        texts = split.texts.rows(torch.from_numpy(missing))
        added = CandidateScores(
            rows=-1 - missing,
            match=matching_scores(query, texts)[0].numpy(),
            align=alignment_scores(query, texts)[0].numpy() if side.has_tokens else None,
            words=words[missing],
        )
        scores = _joined(candidates, added)
        asked.append(_asked(photo, scores, rows[right], added.rows, num_candidates))
        progress.advance()
    return asked


def _rows_of(side: LiveSide, ids: Sequence[str]) -> NDArray[np.int64]:
    """Return the rows of items in an index; -1 where it does not have them."""
    found = [side.items.by_id(item_id) for item_id in ids]
    return np.array([-1 if item is None else item.row for item in found], dtype=np.int64)


def _candidates(
    side: LiveSide,
    query: Encoding,
    count: int,
    align: Callable[[NDArray[np.int64]], NDArray[np.float32]],
) -> CandidateScores:
    rows, match = side.order(query.embedding[0].numpy(), count, count, side.select(None))
    return CandidateScores(
        rows, match, align(rows) if side.has_tokens else None, side.lengths(rows)
    )


def _joined(first: CandidateScores, second: CandidateScores) -> CandidateScores:
    align = None
    if first.align is not None and second.align is not None:
        align = np.concatenate([first.align, second.align])
    return CandidateScores(
        rows=np.concatenate([first.rows, second.rows]),
        match=np.concatenate([first.match, second.match]),
        align=align,
        words=np.concatenate([first.words, second.words]),
    )


def _asked(
    photo: int,
    scores: CandidateScores,
    rows: NDArray[np.int64],
    added: NDArray[np.int64],
    num_candidates: int,
) -> AskedQuery:
    right = np.isin(scores.rows, np.concatenate([rows[rows >= 0], added]))
    return asked_query(photo, scores, right, num_candidates)

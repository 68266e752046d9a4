"""What a calibration is asked about, and what it answers."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

# Candidates that a query's answer is judged by: the first stage's best. The more there are, the
# better is seen what wrong answers score: on Flickr8k, 100 instead of 20 add 0.003 to the AUROC of
# "is there a match at all". And so many a search hands to the second stage if not told otherwise.
POOL = 100


class CandidateScores(NamedTuple):
    """Scores of some items for one query.

    Attributes:
        rows: (n,) int64; tells items apart, the same item has the same row everywhere.
        match: (n,) float32, cosines of the embeddings.
        align: (n,) float32, alignment scores; None where the second stage could not score them.
        words: (n,) int64, words of the text of each pair: the query's, or the item's.
    """

    rows: NDArray[np.int64]
    match: NDArray[np.float32]
    align: NDArray[np.float32] | None
    words: NDArray[np.int64]

    def take(self, places: NDArray[np.int64] | NDArray[np.bool_] | slice) -> CandidateScores:
        """Return the items at some places."""
        align = None if self.align is None else self.align[places]
        return CandidateScores(self.rows[places], self.match[places], align, self.words[places])

    def joined(self, others: CandidateScores) -> CandidateScores:
        """Return these items and others; alignment scores only if both have them."""
        align = None
        if self.align is not None and others.align is not None:
            align = np.concatenate([self.align, others.align])
        return CandidateScores(
            rows=np.concatenate([self.rows, others.rows]),
            match=np.concatenate([self.match, others.match]),
            align=align,
            words=np.concatenate([self.words, others.words]),
        )

    def without_alignment(self) -> CandidateScores:
        """Return what is left where the second stage cannot be asked."""
        return self._replace(align=None)


class Judgement(NamedTuple):
    """What a calibration says of an answer.

    Attributes:
        match_probability: that a right answer is among the items that were searched.
        no_match: whether that is so little that there is none, as far as the scores tell.
        probabilities: (hits,) float64, that each hit belongs together with the query.
    """

    match_probability: float
    no_match: bool
    probabilities: NDArray[np.float64]

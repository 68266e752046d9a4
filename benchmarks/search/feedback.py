"""Relevance feedback on photos with captions, ours and that of Qdrant's engine in one run.

Of the first twenty hits of a text, the first three right and the first three wrong ones are marked;
compared are the right ones among the next twenty hits, which leave out the twenty that were seen.
"""

from __future__ import annotations

import tempfile
from collections.abc import Generator, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from benchmarks.engines.compared import load_qdrant

_MARKED, SEEN = 3, 20
# a, b, c of its "naive" feedback: those of its documentation, and a text that counts as much as
# the marks.
_COEFFICIENTS = ((0.12, 0.43, 0.16), (1.0, 1.0, 0.5), (1.0, 1.0, 1.0))
_POINTS_AT_A_TIME = 500


class Marks(NamedTuple):
    """What a reader of the first hits marks.

    Attributes:
        seen: Ids of the hits that were looked at, best first.
        likes: Ids of the right ones that were marked.
        unlikes: Ids of the wrong ones that were marked.
        after: Ids of the hits that follow without marks.
    """

    seen: list[str]
    likes: list[str]
    unlikes: list[str]
    after: list[str]

    def right_of(self, hits: Sequence[str], right: frozenset[str]) -> int:
        """Return how many of the next hits are right.

        Args:
            hits: Hits of a search with the marks, best first, seen ones among them.
            right: Ids of the right photos.
        """
        following = [hit for hit in hits if hit not in self.seen][:SEEN]
        return len(right.intersection(following))


def mark(hits: Sequence[str], right: frozenset[str]) -> Marks | None:
    """Mark hits of a text; None if the first have too few right or wrong ones.

    Args:
        hits: Twice as many hits as are looked at, best first.
        right: Ids of the right photos.
    """
    seen = list(hits[:SEEN])
    likes = [hit for hit in seen if hit in right][:_MARKED]
    unlikes = [hit for hit in seen if hit not in right][:_MARKED]
    if len(likes) < _MARKED or len(unlikes) < _MARKED:
        return None
    return Marks(seen, likes, unlikes, list(hits[SEEN : 2 * SEEN]))


class Ratios:
    """Right ones among the next hits by several queries, beside those without marks."""

    def __init__(self) -> None:
        """Start without any query."""
        self._unmarked: list[int] = []
        self._marked: dict[str, list[int]] = {}
        self._current: tuple[Marks, frozenset[str]] | None = None

    def start(self, marks: Marks, right: frozenset[str]) -> None:
        """Go on with another text, of which these photos are right."""
        self._current = marks, right
        self._unmarked.append(len(right.intersection(marks.after)))

    def add(self, name: str, hits: Sequence[str]) -> None:
        """Count the right ones of the current text's hits with marks, best first."""
        assert self._current is not None
        marks, right = self._current
        self._marked.setdefault(name, []).append(marks.right_of(hits, right))

    def figures(self) -> dict[str, float]:
        """Return the number of texts, the mean without marks, and the ratio of each query."""
        count, without = len(self._unmarked), float(np.sum(self._unmarked))
        figures = {"feedback_texts": count, "next_right": without / count if count else np.nan}
        ratios = {name: sum(each) / without for name, each in self._marked.items() if without}
        return figures | {f"feedback_{name}": ratio for name, ratio in ratios.items()}


def rank_by_labels(
    ids: Sequence[str], embeddings: NDArray[np.float32], right: frozenset[str]
) -> list[str]:
    """Rank photos by a linear classifier that learns from the labels of all other photos.

    Args:
        ids: Photos.
        embeddings: (photos, dim) float32, their embeddings.
        right: Ids of the right photos, at least five.
    """
    from sklearn.linear_model import LogisticRegression
    from sklearn.model_selection import cross_val_predict

    labels = np.array([each in right for each in ids])
    classifier = LogisticRegression(C=3.0, max_iter=200)
    method = "decision_function"
    scores = np.asarray(cross_val_predict(classifier, embeddings, labels, cv=5, method=method))
    return [ids[int(row)] for row in np.argsort(-scores, kind="stable")]


class QdrantFeedback:
    """Qdrant's engine in process, with the embeddings of photos, searched exactly."""

    def __init__(self, folder: Path, ids: Sequence[str], embeddings: NDArray[np.float32]) -> None:
        """Store the embeddings of all photos in a new folder."""
        self._engine = engine = load_qdrant()
        self._ids = list(ids)
        self._embeddings = dict(zip(ids, embeddings.tolist(), strict=True))
        params = engine.EdgeVectorParams(size=embeddings.shape[1], distance=engine.Distance.Dot)
        self._shard = engine.EdgeShard.create(str(folder), engine.EdgeConfig({"dense": params}))
        for start in range(0, len(ids), _POINTS_AT_A_TIME):
            rows = range(start, min(start + _POINTS_AT_A_TIME, len(ids)))
            points = [engine.Point(row, {"dense": embeddings[row]}, {}) for row in rows]
            self._shard.update(engine.UpdateOperation.upsert_points(points))

    def searches(
        self, text: NDArray[np.float32], marks: Marks, count: int
    ) -> Iterator[tuple[str, list[str]]]:
        """Yield the hits of each of its queries that take marks, by the query's name.

        Args:
            text: Embedding of the text.
            marks: Marked photos.
            count: Number of hits.
        """
        engine, words = self._engine, text.tolist()
        likes = [self._embeddings[each] for each in marks.likes]
        unlikes = [self._embeddings[each] for each in marks.unlikes]
        scored = [(1.0, each) for each in likes] + [(0.0, each) for each in unlikes]
        feedback = [engine.FeedbackItem(vector, score) for score, vector in scored]
        for a, b, c in _COEFFICIENTS:
            strategy = engine.NaiveFeedbackStrategy(a, b, c)
            naive = engine.FeedbackNaiveQuery(words, feedback, strategy)
            query = engine.Query.FeedbackNaive(naive, using="dense")
            yield f"qdrant_feedback_{a:g}_{b:g}_{c:g}", self._hits(query, count)
        examples = engine.RecommendQuery([words, *likes], unlikes)
        for name in ("RecommendBestScore", "RecommendSumScores"):
            query = getattr(engine.Query, name)(examples, using="dense")
            yield f"qdrant_{name}", self._hits(query, count)
        pairs = [engine.ContextPair(*pair) for pair in zip(likes, unlikes, strict=True)]
        query = engine.Query.Discover(engine.DiscoverQuery(words, pairs), using="dense")
        yield "qdrant_Discover", self._hits(query, count)

    def _hits(self, query: Any, count: int) -> list[str]:
        found = self._shard.query(self._engine.QueryRequest(limit=count, query=query))
        return [self._ids[point.id] for point in found]

    def close(self) -> None:
        """Close the shard."""
        self._shard.close()


@contextmanager
def open_qdrant(
    ids: Sequence[str], embeddings: NDArray[np.float32]
) -> Generator[QdrantFeedback | None]:
    """Open Qdrant's engine with the embeddings of photos; None if it is not installed."""
    try:
        load_qdrant()
    except ImportError:
        yield None
        return
    with tempfile.TemporaryDirectory() as folder:
        opened = QdrantFeedback(Path(folder) / "shard", ids, embeddings)
        try:
            yield opened
        finally:
            opened.close()

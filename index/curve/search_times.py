"""How long a search takes with several numbers of candidates, measured side by side."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import torch

from aladin.progress import Progress
from index.ann.faiss_library import faiss
from index.evaluation_queries import Question
from index.modality import Modality
from index.searcher import TwoStageSearcher
from index.settings import Target

_TOP = 10


class SearchTime(NamedTuple):
    """Milliseconds of both stages on one thread; encoding and looking up come on top."""

    median_ms: float
    p95_ms: float


def search_times(
    searcher: TwoStageSearcher,
    questions: Sequence[Question],
    modality: Modality,
    target: Target,
    numbers: Sequence[int],
    progress: Progress,
) -> list[SearchTime]:
    """Time searches for as many hits as there are candidates, at most ten.

    With fewer candidates than hits a search goes on block by block: that is how pages continue,
    not what the candidates cost.

    Every question is asked with every number of candidates before the next one is: whatever
    else keeps the machine busy slows all numbers alike. Their order is drawn anew for each
    question, for a search that follows one of all items finds the caches full of other things.

    Args:
        searcher: of the index.
        questions: at least one.
        modality: of the questions.
        target: side to be searched.
        numbers: of candidates.
        progress: advanced question by question.

    Returns:
        The times of each number.
    """
    random = np.random.default_rng(0)
    times_ms = np.empty((len(questions), len(numbers)))
    threads = torch.get_num_threads(), faiss.omp_get_max_threads()
    torch.set_num_threads(1)  # as the service does: a query is one thread's work
    faiss.omp_set_num_threads(1)
    try:
        for row, (query, _) in enumerate(questions):
            for column in random.permutation(len(numbers)):
                number = numbers[column]
                took_ms = searcher.search(
                    query, modality, target, top_k=min(_TOP, number), num_candidates=number
                ).took_ms
                times_ms[row, column] = took_ms.retrieve + took_ms.rerank
            progress.advance()
    finally:
        torch.set_num_threads(threads[0])
        faiss.omp_set_num_threads(threads[1])
    median, p95 = np.quantile(times_ms, (0.5, 0.95), axis=0)
    return [SearchTime(*pair) for pair in zip(median.tolist(), p95.tolist(), strict=True)]

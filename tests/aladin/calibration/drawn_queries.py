"""Queries whose scores are drawn from a known law."""

from __future__ import annotations

import numpy as np

from aladin_network.calibration.fit import AskedQuery
from aladin_network.calibration.judging import CandidateScores


def draw_queries(
    photos: int, items: int = 30, seed: int = 0, gain: float = 0.15
) -> list[AskedQuery]:
    """One query a photo with one right answer, whose scores are `gain` above the others'."""
    generator = np.random.default_rng(seed)
    asked: list[AskedQuery] = []
    for photo in range(photos):
        right = np.arange(items) == generator.integers(items)
        match = generator.normal(0.3, 0.1, items) + gain * right
        words = np.full(items, generator.integers(4, 12))
        align = words * (generator.normal(0.2, 0.1, items) + gain * right)
        order = np.argsort(-match)
        scores = CandidateScores(
            np.arange(items),
            match.astype(np.float32),
            align.astype(np.float32),
            words,
        )
        asked.append(AskedQuery(photo, scores.take(order), right[order]))
    return asked

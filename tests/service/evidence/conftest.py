"""Pairs with made-up evidence."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence

import pytest

from aladin_index.search.results import Evidence
from aladin_service.evidence.png import ExplainedPair

# A grid of 2 x 2 cells, and the whole photo.
CELLS = [
    (0.0, 0.0, 0.5, 0.5),
    (0.5, 0.0, 1.0, 0.5),
    (0.0, 0.5, 0.5, 1.0),
    (0.5, 0.5, 1.0, 1.0),
    (0.0, 0.0, 1.0, 1.0),
]

MakePair = Callable[..., ExplainedPair]


@pytest.fixture(scope="session")
def make_pair() -> MakePair:
    """Makes a pair: ``make_pair("a red dog", regions=[4, 1, 1], scores=[0.1, 0.4, 0.5])``."""

    def make(
        text: str,
        regions: Sequence[int],
        scores: Sequence[float],
        *,
        placed: bool = True,
        spans: Sequence[tuple[int, int]] | None = None,
    ) -> ExplainedPair:
        found = spans or [match.span() for match in re.finditer(r"\S+", text)]
        sizes = sum(abs(score) for score in scores) or 1.0
        return ExplainedPair(
            text=text,
            text_id=None,
            photo_id="a photo",
            generation=1,
            match=0.25,
            align=sum(scores),
            evidence=[
                Evidence(
                    token=text[start:end],
                    start=start,
                    end=end,
                    region=region,
                    box=CELLS[region] if placed else None,
                    score=score,
                    share=score / sizes,
                )
                for (start, end), region, score in zip(found, regions, scores, strict=False)
            ],
        )

    return make

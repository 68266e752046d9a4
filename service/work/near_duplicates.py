"""Leaves out of a list of hits what looks like one that is in it already."""

from __future__ import annotations

import numpy as np
from jaxtyping import Float32
from numpy.typing import NDArray


def first_of_each_kind(
    embeddings: Float32[NDArray[np.float32], "hits dim"], threshold: float
) -> list[int]:
    """Go through the hits from the best on and keep each that is not like one kept before.

    What is like a hit that was left out is kept: likeness does not add up over a chain of hits.

    Args:
        embeddings: L2-normalised, best hit first.
        threshold: cosine from which on two hits are alike.

    Returns:
        The places that are kept, in order.
    """
    alike = embeddings @ embeddings.T >= threshold
    left_out = np.zeros(len(embeddings), dtype=bool)
    kept: list[int] = []
    for place, like_this in enumerate(alike):
        if not left_out[place]:
            kept.append(place)
            left_out |= like_this
    return kept

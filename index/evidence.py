"""The exact evidence for a score: for every word its best region, and the cosine there."""

from __future__ import annotations

from jaxtyping import Float
from torch import Tensor

from aladin.errors import InputError
from aladin.model import AladinModel
from index.results import WordEvidence


def word_evidence(
    model: AladinModel,
    words: Float[Tensor, "words dim"],
    regions: Float[Tensor, "regions dim"],
    text: str,
    size_px: tuple[int, int] | None,
) -> list[WordEvidence]:
    """Find each word's best region; the scores add up to the pair's alignment score.

    Args:
        model: that encoded both; it knows where words and regions are.
        words: the text's tokens.
        regions: the photo's tokens.
        text: what the words were made of.
        size_px: width and height of the photo; None: not known, and the boxes neither.

    Returns:
        One entry a word, in order; empty if the photo has no region.

    Raises:
        InputError: the words are not those of this text.
    """
    if words.shape[0] == 0 or regions.shape[0] == 0:
        return []
    spans = model.text.encoder.spans(text)
    # The alignment head may be told to trim a text's last word piece.
    if len(spans) - words.shape[0] not in (0, 1):
        raise InputError(f"the query has {words.shape[0]} words, its text {len(spans)}: {text!r}")
    boxes: list[list[float]] | None = None
    if size_px is not None:
        cells = model.image.encoder.region_boxes(*size_px)
        # The tower may have taken the first cells for the aggregate.
        boxes = cells[cells.shape[0] - regions.shape[0] :].tolist()
    best = (words @ regions.T).max(dim=1)
    found = zip(spans[: len(words)], best.indices.tolist(), best.values.tolist(), strict=True)
    sizes = float(best.values.abs().sum()) or 1.0  # the shares of nothing are 0
    evidence: list[WordEvidence] = []
    for (start, end), region, score in found:
        box = None
        if boxes is not None:
            x0, y0, x1, y1 = boxes[region]
            box = (x0, y0, x1, y1)
        evidence.append(
            WordEvidence(text[start:end], start, end, region, box, score, score / sizes)
        )
    return evidence

"""Fitting of the hubness correction: its constants, chosen on photos that are not of the bank."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import torch
from jaxtyping import Float, Int
from numpy.typing import NDArray
from torch import Tensor

from aladin_network.scoring.fusion import DirectionFusion, Fusion
from aladin_network.scoring.hub_correction import (
    CorrectionConstants,
    DirectionCorrection,
    EncodedItems,
    HubCorrection,
    NearestMean,
    align_with_bank,
    match_with_bank,
)
from aladin_network.scoring.metrics import Ranks, retrieval_ranks
from aladin_network.scoring.two_stages import fit_fusion, two_stage_ranks
from aladin_network.types import Direction, Target

# Constants that are tried; a weight of 0 is no correction.
_NEAREST = (8, 16, 32, 64, 128)
_WEIGHTS = (0.25, 0.5, 0.75, 1.0)

# What a search of a direction finds.
TARGET_OF: dict[Direction, Target] = {"text_to_image": "images", "image_to_text": "texts"}


@dataclass(frozen=True, kw_only=True)
class ScoredSplit:
    """Photos and texts of a split with the scores of all pairs.

    Attributes:
        image_of_text: Row of each text's photo.
    """

    images: EncodedItems
    texts: EncodedItems
    match: Float[Tensor, "images texts"]
    align: Float[Tensor, "images texts"]
    image_of_text: Int[Tensor, " texts"]

    @classmethod
    def of(
        cls, images: EncodedItems, texts: EncodedItems, image_of_text: Int[Tensor, " texts"]
    ) -> ScoredSplit:
        """Score all pairs."""
        match = match_with_bank(images, texts)
        align = align_with_bank("texts", texts, images).T
        return cls(
            images=images,
            texts=texts,
            match=torch.from_numpy(match),
            align=torch.from_numpy(np.ascontiguousarray(align)),
            image_of_text=image_of_text,
        )


@dataclass(frozen=True, kw_only=True)
class CorrectedScores:
    """Scores of all pairs in one direction, less the biases of the items that are found."""

    match: Float[Tensor, "images texts"]
    align: Float[Tensor, "images texts"]


def corrected(
    match: Float[Tensor, "images texts"],
    align: Float[Tensor, "images texts"],
    direction: Direction,
    biases: Float[np.ndarray, "items 2"],
    words: Int[np.ndarray, " texts"],
) -> CorrectedScores:
    """Subtract biases from scores.

    Args:
        match: Cosines.
        align: Alignment scores.
        direction: Direction of search, whose items have the biases.
        biases: Result of `HubCorrection.biases` for these items.
        words: Number of words of each text.
    """
    of_match, of_align = torch.from_numpy(biases).to(match).unbind(1)
    if direction == "image_to_text":
        return CorrectedScores(match=match - of_match, align=align - of_align)
    counts = torch.from_numpy(np.asarray(words)).to(match)
    return CorrectedScores(
        match=match - of_match.unsqueeze(1),
        align=align - of_align.unsqueeze(1) * counts,
    )


def fit_correction(
    constants: CorrectionConstants, images: EncodedItems, texts: EncodedItems, split: ScoredSplit
) -> HubCorrection:
    """Choose the constants with the best recalls, and fit the fusion of the corrected scores.

    Args:
        constants: What is stored beside the fitted constants; these are replaced.
        images: Bank of photos.
        texts: Bank of texts.
        split: Photos and their texts that are not of the banks.

    Returns:
        For each direction and score the smallest weight whose R@1 + R@5 + R@10 is at most one
        standard error below the best one, with the best number of nearest for it: the best
        constants of a few hundred photos correct others too much.
    """
    words = torch.from_numpy(np.maximum(split.texts.tokens.lengths, 1))
    chosen: dict[str, DirectionCorrection] = {}
    for direction, target in TARGET_OF.items():
        if target == "images":
            items, like_them, queries, align = split.images, images, texts, split.align / words
        else:
            items, like_them, queries, align = split.texts, texts, images, split.align
        both = items, like_them
        of_match = [match_with_bank(each, queries) for each in both]
        of_align = [align_with_bank(target, each, queries) for each in both]
        chosen[direction] = DirectionCorrection(
            match=_chosen(split, direction, split.match, *of_match),
            align=_chosen(split, direction, align, *of_align),
        )
    constants = replace(constants, **chosen)
    correction = HubCorrection(constants=constants, images=images, texts=texts)
    fusions: dict[Direction, DirectionFusion] = {}
    for direction, scores in corrected_split(correction, split).items():
        fitted = fit_fusion(scores.align, scores.match, split.image_of_text)
        fusions[direction] = fitted.of(direction)
    return replace(correction, constants=replace(constants, fusion=Fusion(**fusions)))


def corrected_split(
    correction: HubCorrection, split: ScoredSplit
) -> dict[Direction, CorrectedScores]:
    """Correct the scores of a split, in each direction."""
    words = split.texts.tokens.lengths
    return {
        direction: corrected(
            split.match,
            split.align,
            direction,
            correction.biases(target, split.images if target == "images" else split.texts),
            words,
        )
        for direction, target in TARGET_OF.items()
    }


def corrected_ranks(correction: HubCorrection, split: ScoredSplit) -> dict[str, Ranks]:
    """Rank a split by the corrected scores, each direction by its own.

    Returns:
        Ranks by score: matching, alignment and fused, each of all pairs.
    """
    scores = corrected_split(correction, split)
    fusion, image_of_text = correction.constants.fusion, split.image_of_text

    def ranked(direction: Direction) -> dict[str, Ranks]:
        match, align = scores[direction].match, scores[direction].align
        return {
            "matching": retrieval_ranks(match, image_of_text),
            "alignment": retrieval_ranks(align, image_of_text),
            "fused": two_stage_ranks(match, align, fusion, image_of_text, num_candidates=None),
        }

    of_texts, of_images = ranked("text_to_image"), ranked("image_to_text")
    return {
        name: Ranks(of_texts[name].text_to_image, of_images[name].image_to_text)
        for name in of_texts
    }


def _chosen(
    split: ScoredSplit,
    direction: Direction,
    scores: Float[Tensor, "images texts"],
    of_items: NDArray[np.float32],
    of_bank: NDArray[np.float32],
) -> NearestMean:
    """Choose the constants of one score by the (items, queries) scores of items and bank."""
    axis = 1 if direction == "text_to_image" else 0

    def hits(constants: NearestMean) -> Tensor:
        """Return for each photo how many of R@1, R@5 and R@10 its queries reach."""
        biases = torch.from_numpy(constants.biases(of_items)).to(scores)
        ranks = retrieval_ranks(scores - biases.unsqueeze(axis), split.image_of_text)
        of_queries = getattr(ranks, direction)
        found = torch.stack([of_queries < k for k in (1, 5, 10)]).double().sum(dim=0)
        if direction == "image_to_text":
            return found
        return torch.zeros(len(scores), dtype=torch.float64).index_add_(
            0, split.image_of_text, found
        )

    constants = [NearestMean(nearest=k, weight=w) for w in _WEIGHTS for k in _NEAREST]
    tried = {each: hits(each) for each in (NearestMean(), *constants)}
    best = max(tried.values(), key=lambda of_photos: float(of_photos.sum()))
    near = {each: float(found.sum()) for each, found in tried.items() if _is_level(found, best)}
    least = min(each.weight for each in near)
    chosen = max((each for each in near if each.weight == least), key=lambda each: near[each])
    return replace(chosen, centre=float(chosen.biases(of_bank).mean(dtype=np.float64)))


def _is_level(found: Tensor, best: Tensor) -> bool:
    """Tell whether hits are fewer than the best by at most one standard error, over photos."""
    fewer = best - found
    return float(fewer.mean()) <= float(fewer.std()) / len(fewer) ** 0.5

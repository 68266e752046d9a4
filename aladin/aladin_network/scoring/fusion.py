"""Constants of the fusion of both stages' scores."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, TypeVar

from pydantic import ConfigDict

from aladin_network.config import STRICT
from aladin_network.types import Direction

# Scores as an array or as a tensor.
Scores = TypeVar("Scores")


@dataclass(frozen=True, kw_only=True)
class DirectionFusion:
    """Constants of one direction, fitted on the validation split's candidates.

    ``score = weight * z(align) + (1 - weight) * z(match)``. Only differences within a query
    matter to the order, so the deviations are those around each query's own mean.

    Attributes:
        weight: Weight of the alignment score; 1 ranks by it alone, as the papers do.
        align_mean: Mean alignment score of the candidates.
        align_std: Standard deviation of the alignment scores within a query.
        match_mean: Mean matching score of the candidates.
        match_std: Standard deviation of the matching scores within a query.
    """

    weight: float = 1.0
    align_mean: float = 0.0
    align_std: float = 1.0
    match_mean: float = 0.0
    match_std: float = 1.0

    def combine(self, align: Scores, match: Scores, weight: float | None = None) -> Scores:
        """Fuse the two scores of candidates.

        Args:
            align: Alignment scores, an array or a tensor of any shape.
            match: Matching scores, same kind and shape.
            weight: Overrides the fitted weight; 1 returns `align` itself, the papers' rule.
        """
        weight = self.weight if weight is None else weight
        return align if weight == 1 else self.standardized(align, match, weight)

    def standardized(self, align: Scores, match: Scores, weight: float | None = None) -> Scores:
        """Fuse the two scores in standard deviations, whatever the weight.

        Args:
            align: Alignment scores, an array or a tensor of any shape.
            match: Matching scores, same kind and shape.
            weight: Overrides the fitted weight.
        """
        weight = self.weight if weight is None else weight
        aligned: Any = align
        matched: Any = match
        z_align = (aligned - self.align_mean) / self.align_std
        z_match = (matched - self.match_mean) / self.match_std
        return weight * z_align + (1 - weight) * z_match


@dataclass(frozen=True, kw_only=True)
class Fusion:
    """The fusion of both directions."""

    __pydantic_config__: ClassVar[ConfigDict] = STRICT

    text_to_image: DirectionFusion = DirectionFusion()
    image_to_text: DirectionFusion = DirectionFusion()

    def of(self, direction: Direction) -> DirectionFusion:
        """Return the constants of one direction."""
        return self.text_to_image if direction == "text_to_image" else self.image_to_text

"""Cross-modal projection matching (CMPM), one of DBL's rivals."""

from __future__ import annotations

from jaxtyping import Bool, Float
from torch import Tensor, nn

from aladin_network.errors import ConfigError
from aladin_training.losses.negatives import check_mask


class ProjectionMatchingLoss(nn.Module):
    """The candidates of a query should be as likely as the share of them that match.

    With P the softmax of ``temperature * S`` over a query's candidates, and Y equal shares for
    those that are no negatives of it::

        L = mean over image queries of sum_t P[i,t] log(P[i,t] / (Y[i,t] + epsilon))
          + mean over text queries  of sum_i P[i,t] log(P[i,t] / (Y[i,t] + epsilon))

    Zhang and Lu, *Deep Cross-Modal Projection Learning for Image-Text Matching*, ECCV 2018,
    eqs 1-4, in the form of DBL's official code: cosines and a temperature in place of the
    projections on unit vectors. The divergence is from P to Y, so that probability on a negative
    costs up to -log(epsilon).
    """

    def __init__(self, temperature: float = 10.0, epsilon: float = 1e-8) -> None:
        """Choose how peaked the distribution is.

        Args:
            temperature: Factor of the scores, in effect an inverse temperature.
            epsilon: Share of a negative.

        Raises:
            ConfigError: If a value is not positive.
        """
        super().__init__()
        if temperature <= 0 or epsilon <= 0:
            raise ConfigError(
                "projection_matching: temperature and epsilon must be positive, "
                f"got {temperature} and {epsilon}"
            )
        self.temperature = temperature
        self.epsilon = epsilon

    def forward(
        self, scores: Float[Tensor, "images texts"], negatives: Bool[Tensor, "images texts"]
    ) -> Float[Tensor, ""]:
        """Compute the divergence of a batch.

        Args:
            scores: Scores; row = image, column = text.
            negatives: False where image and text belong together, which in a batch includes two
                captions of one photo; each row and column has such a pair.

        Raises:
            ShapeError: If `negatives` has not the scores' shape.
        """
        check_mask(scores, negatives)
        return self._divergence(scores, ~negatives) + self._divergence(scores.T, ~negatives.T)

    def _divergence(
        self,
        scores: Float[Tensor, "queries candidates"],
        matching: Bool[Tensor, "queries candidates"],
    ) -> Float[Tensor, ""]:
        log_p = (self.temperature * scores).log_softmax(dim=1)
        share = matching.to(scores.dtype) / matching.sum(dim=1, keepdim=True)
        return (log_p.exp() * (log_p - (share + self.epsilon).log())).sum(dim=1).mean()

"""Regression of a teacher's scores (RKD), one of DBL's rivals."""

from __future__ import annotations

from jaxtyping import Float
from torch import Tensor
from torch.nn.functional import smooth_l1_loss

from aladin_network.errors import ConfigError
from aladin_training.losses.teachers import ScoreTransferLoss


class ScoreRegressionLoss(ScoreTransferLoss):
    """The student's scores should be the teacher's.

    The mean over all pairs of Huber's function of the difference d of the two scores::

        d^2 / (2 threshold)  where |d| < threshold,     else |d| - threshold / 2

    Park et al., *Relational Knowledge Distillation*, CVPR 2019, in the form of DBL's official
    code: the relation is the cross-modal score itself, not normalised by its mean, and its weight
    in the sum is 10.
    """

    def __init__(self, threshold: float = 1.0) -> None:
        """Choose where the function becomes linear.

        Args:
            threshold: Difference above which the cost grows linearly, in units of the scores.

        Raises:
            ConfigError: If the threshold is not positive.
        """
        super().__init__()
        if threshold <= 0:
            raise ConfigError(f"score_regression: threshold must be positive, got {threshold}")
        self.threshold = threshold

    def transfer(
        self, student: Float[Tensor, "images texts"], teacher: Float[Tensor, "images texts"]
    ) -> Float[Tensor, ""]:
        """Average the costs of all pairs."""
        return smooth_l1_loss(student, teacher, beta=self.threshold)

"""Distillation of a ranking (ALADIN eqs 5-7)."""

from __future__ import annotations

from jaxtyping import Float
from torch import Tensor

from aladin_network.errors import ConfigError
from aladin_training.losses.teachers import ScoreTransferLoss


class ListNetLoss(ScoreTransferLoss):
    """The student should give each query the teacher's distribution over the candidates.

    With P the softmax of ``teacher_scale * S_A`` and Q that of ``temperature * S_M``, both over
    images for a text query (columns) and over texts for an image query (rows)::

        L_D = mean over text queries of -sum_k P(k|l) log Q(k|l)
            + mean over image queries of -sum_l P(l|k) log Q(l|k)

    ListNet's top-one approximation (Cao et al. 2007). Every pair of the batch takes part: two
    captions of one image are for the teacher to judge, so there is no mask of negatives.
    """

    def __init__(self, temperature: float = 6.0, teacher_scale: float = 1.0) -> None:
        """Choose how peaked the two distributions are.

        Args:
            temperature: Factor of the student's cosines, in effect an inverse temperature; 6 is
                the official code's value (A-6).
            teacher_scale: Factor of the teacher's scores, 1 in the paper. The scores of a weak
                teacher are close to each other and need a larger factor.

        Raises:
            ConfigError: If a factor is not positive.
        """
        super().__init__()
        if temperature <= 0 or teacher_scale <= 0:
            raise ConfigError(
                "listnet: temperature and teacher_scale must be positive, "
                f"got {temperature} and {teacher_scale}"
            )
        self.temperature = temperature
        self.teacher_scale = teacher_scale

    def transfer(
        self, student: Float[Tensor, "images texts"], teacher: Float[Tensor, "images texts"]
    ) -> Float[Tensor, ""]:
        """Add the cross-entropies of both directions."""
        student, teacher = self.temperature * student, self.teacher_scale * teacher
        return _cross_entropy(student, teacher, dim=0) + _cross_entropy(student, teacher, dim=1)


def _cross_entropy(student: Tensor, teacher: Tensor, dim: int) -> Tensor:
    """Average over the queries; the candidates lie along `dim`."""
    return -(teacher.softmax(dim) * student.log_softmax(dim)).sum(dim).mean()

"""The reverse divergence of self-distillation (DINO*), one of DBL's rivals."""

from __future__ import annotations

from jaxtyping import Float
from torch import Tensor

from aladin_network.errors import ConfigError
from aladin_training.losses.teachers import ScoreTransferLoss


class ReverseDivergenceLoss(ScoreTransferLoss):
    """The student should not find likely what the teacher finds unlikely.

    With Q the softmax of ``temperature * S`` of the student over a query's candidates and P that of
    the teacher, the Kullback-Leibler divergence from Q to P::

        L = mean over image queries of sum Q log(Q / P)  +  the same over text queries

    DBL's official code names it "dinopp"; its "dino" is the cross-entropy ``-sum P log Q`` and its
    "dml" the divergence from P to Q, which are the loss `listnet` with both factors at this
    temperature (up to the teacher's entropy, which has no gradient).
    """

    def __init__(self, temperature: float = 10.0) -> None:
        """Choose how peaked the distributions are.

        Args:
            temperature: Factor of both networks' scores, in effect an inverse temperature.

        Raises:
            ConfigError: If the temperature is not positive.
        """
        super().__init__()
        if temperature <= 0:
            raise ConfigError(
                f"reverse_divergence: temperature must be positive, got {temperature}"
            )
        self.temperature = temperature

    def transfer(
        self, student: Float[Tensor, "images texts"], teacher: Float[Tensor, "images texts"]
    ) -> Float[Tensor, ""]:
        """Add the divergences of both directions."""
        student, teacher = self.temperature * student, self.temperature * teacher
        return _divergence(student, teacher, dim=0) + _divergence(student, teacher, dim=1)


def _divergence(student: Tensor, teacher: Tensor, dim: int) -> Tensor:
    """Average over the queries; the candidates lie along `dim`."""
    log_q, log_p = student.log_softmax(dim), teacher.log_softmax(dim)
    return (log_q.exp() * (log_q - log_p)).sum(dim).mean()

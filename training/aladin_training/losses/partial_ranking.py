"""Distillation of the order among each query's best candidates (CPRD, Chen et al., CVPR 2024)."""

from __future__ import annotations

from jaxtyping import Float
from torch import Tensor, nn

from aladin_network.errors import ConfigError, ShapeError


class PartialRankingLoss(nn.Module):
    """The student should order each query's best candidates as the teacher does.

    Candidate ``r(k)`` is the teacher's k-th best of a query. With ``s = temperature * S`` of the
    student and K the depth, each of the best K should win a softmax against all that the teacher
    puts below it::

        L_q = 1/K sum_{k=1..K} [ log sum_{j>=k} e^s[r(j)] - s[r(k)] ]
        L   = mean of L_q over text queries + mean of L_q over image queries

    After contrastive partial ranking distillation ("How to Make Cross Encoder a Good Teacher for
    Efficient Image-Text Retrieval?", arXiv 2407.07479): only the order among hard negatives is
    taught, which scores that lie close together still have, and which a softmax of them, as in
    `aladin_training.losses.listnet.ListNetLoss`, hardly shows. The paper takes the hard negatives
    from the student's best of a queue; here they are the teacher's best of the batch, and the
    positive has the place that the teacher gives it.
    """

    def __init__(self, temperature: float = 20.0, depth: int = 16) -> None:
        """Choose the student's scale and how much of the order is taught.

        Args:
            temperature: Factor of the student's scores, in effect an inverse temperature.
            depth: Number K of places; a shorter list is ordered completely.

        Raises:
            ConfigError: If the factor or the depth is not positive.
        """
        super().__init__()
        if temperature <= 0 or depth < 1:
            raise ConfigError(
                "partial_ranking: temperature must be positive and depth at least 1, "
                f"got {temperature} and {depth}"
            )
        self.temperature = temperature
        self.depth = depth

    def forward(
        self,
        student_scores: Float[Tensor, "images texts"],
        teacher_scores: Float[Tensor, "images texts"],
    ) -> Float[Tensor, ""]:
        """Compute the negative log-likelihood of a batch's orders.

        Args:
            student_scores: Scores that learn.
            teacher_scores: Scores of the same pairs that define the order; they get no gradient.

        Raises:
            ShapeError: If the two matrices differ in shape.
        """
        if student_scores.shape != teacher_scores.shape:
            raise ShapeError(
                f"teacher_scores {tuple(student_scores.shape)}", tuple(teacher_scores.shape)
            )
        student, teacher = self.temperature * student_scores, teacher_scores.detach()
        return self._of_rows(student.T, teacher.T) + self._of_rows(student, teacher)

    def _of_rows(
        self,
        student: Float[Tensor, "queries candidates"],
        teacher: Float[Tensor, "queries candidates"],
    ) -> Float[Tensor, ""]:
        order = teacher.argsort(dim=1, descending=True, stable=True)
        ordered = student.gather(1, order)
        # At place k the sum runs over the candidates from k on.
        remaining = ordered.flip(1).logcumsumexp(dim=1).flip(1)
        return (remaining - ordered)[:, : self.depth].mean()

"""What the losses that transfer a teacher's scores to a student have in common."""

from __future__ import annotations

from jaxtyping import Float
from torch import Tensor, nn

from aladin_network.errors import ShapeError


class ScoreTransferLoss(nn.Module):
    """A loss by which a student learns the scores that a teacher gives the same pairs."""

    def forward(
        self,
        student_scores: Float[Tensor, "images texts"],
        teacher_scores: Float[Tensor, "images texts"],
    ) -> Float[Tensor, ""]:
        """Compute the loss of a batch.

        Args:
            student_scores: Scores of the student; row = image, column = text.
            teacher_scores: Scores of the same pairs; they get no gradient.

        Raises:
            ShapeError: If the two matrices differ in shape.
        """
        if student_scores.shape != teacher_scores.shape:  # they would broadcast
            raise ShapeError(
                f"teacher_scores {tuple(student_scores.shape)}", tuple(teacher_scores.shape)
            )
        return self.transfer(student_scores, teacher_scores.detach())

    def transfer(
        self, student: Float[Tensor, "images texts"], teacher: Float[Tensor, "images texts"]
    ) -> Float[Tensor, ""]:
        """Compute the loss of two matrices of one shape, of which the second is a constant."""
        raise NotImplementedError

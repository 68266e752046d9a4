"""What the losses that transfer a teacher's scores to a student have in common."""

from __future__ import annotations

from torch import Tensor

from aladin_network.errors import ShapeError


def check_teacher(student_scores: Tensor, teacher_scores: Tensor) -> None:
    """Refuse a teacher's scores that would broadcast against the student's.

    Raises:
        ShapeError: If the two matrices differ in shape.
    """
    if student_scores.shape != teacher_scores.shape:
        raise ShapeError(
            f"teacher_scores {tuple(student_scores.shape)}", tuple(teacher_scores.shape)
        )

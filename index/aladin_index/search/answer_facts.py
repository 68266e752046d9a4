"""Facts of an answer as a whole: its models, while the index is upgraded."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Literal

from pydantic import Field

# What scored a hit while an index is upgraded: its old model, the new one, or the query of the new
# one over a linear bridge to the encodings of the old model.
HitModel = Literal["old", "new", "bridge"]


@dataclass(frozen=True, slots=True, kw_only=True)
class AnswerUpgrade:
    """An upgrade of the index to another model, in which both models answered."""

    old_model: Annotated[str, Field(description="SHA-256 of the weights of the old model.")]
    new_model: Annotated[str, Field(description="SHA-256 of the weights of the new model.")]
    rest: Annotated[
        Literal["old", "bridge"],
        Field(
            description="What scored the items that the new model has not encoded yet: the old"
            " model, or the new one over a bridge to the old encodings."
        ),
    ]
    encoded: Annotated[
        float, Field(description="Share of the searched items that the new model has encoded.")
    ]

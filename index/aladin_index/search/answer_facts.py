"""Facts of an answer as a whole: its prediction set; its models, while the index is upgraded."""

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


@dataclass(frozen=True, slots=True, kw_only=True)
class AnswerSet:
    """The hits likely enough that, with the confidence asked for, a right one is among them."""

    confidence: Annotated[float, Field(description="As it was asked for.")]
    level: Annotated[
        float | None,
        Field(
            description="Share of queries whose set holds a right item: the fitted confidence, the"
            " asked one or the next higher percent. Null if the page lacks items of the set, or"
            " there is none."
        ),
    ] = None
    size: Annotated[
        int | None, Field(description="Items of the set, on the page or not; null without a set.")
    ] = None
    truncated: Annotated[
        bool,
        Field(description="Whether the page lacks items of the set, which a larger `k` adds."),
    ] = False
    unreliable_because: Annotated[
        str | None,
        Field(
            description="Why there is no set, so that no hit is left out: other_photos,"
            " unknown_text_lengths and text_length as for probabilities; filter, since the"
            " calibration's queries searched without one; more_items, since they searched fewer"
            " items by a tenth or more; no_sets, since the answer has no probabilities. Otherwise"
            " null."
        ),
    ] = None

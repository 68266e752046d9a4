"""The description of an index, the same at every door.

`IndexFacts` is what whoever may search an index may know of it. `aladin_index.generations.info`
makes it, as a subclass with what is known where the index is stored; an adapter of `IndexFacts`
writes none of that. Importing this module imports no numpy.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Annotated, Literal, TypeVar

from pydantic import Field

from aladin_network.calibration.figures import CalibrationFacts
from aladin_network.types import Target, TokenDtype

T = TypeVar("T")

FieldValue = bool | int | float | str


@dataclass(frozen=True, kw_only=True)
class OperatingPoint:
    """One setting of the ANN search, and how much it finds.

    Attributes:
        search_width: Value of efSearch or nprobe, or None if every item is compared.
        oversample: Number of items requested from the ANN index for each one wanted; the best by
            exact cosine are kept.
        recall: Value of ann_recall, the share of the exact nearest items that are found.
    """

    search_width: int | None
    oversample: float = 1.0
    recall: float


@dataclass(frozen=True, kw_only=True)
class FirstStage(OperatingPoint):
    """The ANN of one collection, with the setting that searches use.

    Attributes:
        factory: Factory string that FAISS made the index from, or the first stage of an engine.
        recall_at: Number of nearest items that the recall was measured at.
    """

    factory: str
    recall_at: int


@dataclass(frozen=True, kw_only=True)
class TunedCandidates:
    """The number of candidates that `aladin index tune` chose.

    Attributes:
        candidates: Smallest number of candidates that reaches the fidelity wanted.
        fidelity: Fidelity that is reached with these candidates.
        at: Number of top hits that are compared.
    """

    candidates: int
    fidelity: float
    at: int


@dataclass(frozen=True, kw_only=True)
class EncodedEntry:
    """Encoded images or texts.

    Attributes:
        count: Number of items.
        embedding_dim: Size of an embedding.
        token_dim: Size of a token.
        token_dtype: Form in which tokens are stored.
    """

    count: int
    embedding_dim: int
    token_dim: int
    token_dtype: TokenDtype


@dataclass(frozen=True, kw_only=True)
class CollectionForm(EncodedEntry):
    """The images, or the texts, as they are searched.

    Attributes:
        token_count: Number of tokens of all items.
        tuning: Tuning of the second stage, or None if not tuned.
    """

    skipped: Annotated[int, Field(description="Items given to the build that cannot be used.")]
    token_count: int
    ann: FirstStage
    tuning: TunedCandidates | None = None


@dataclass(frozen=True, kw_only=True)
class CollectionFacts(CollectionForm):
    """The images, or the texts; items that were added since the build count, too."""

    takes_all: Annotated[
        bool,
        Field(
            description="Whether searches may take all items as candidates "
            "(`candidates: exhaustive`)."
        ),
    ] = False


@dataclass(frozen=True, kw_only=True)
class IndexModel:
    """The model that made the index.

    Attributes:
        id: SHA-256 of its weights.
    """

    id: str
    name: Annotated[
        str | None,
        Field(description="Pretrained model that its image encoder is or began as, or null."),
    ] = None


@dataclass(frozen=True, kw_only=True)
class SkippedReason:
    """Files and items that are skipped for one reason."""

    reason: str
    count: int
    names: Annotated[list[str], Field(description="At most 20 of them.")]


@dataclass(frozen=True, kw_only=True)
class SkippedSummary:
    """What an index lacks of its sources: by its build, or by the last look at its folders."""

    total: Annotated[
        int, Field(description="Files that look like photos, and items, that cannot be used.")
    ] = 0
    reasons: Annotated[list[SkippedReason], Field(description="The 20 most frequent ones.")] = (
        field(default_factory=list[SkippedReason])
    )
    other_files: Annotated[
        dict[str, int],
        Field(description="Files of followed folders that are no photos, by kind, such as videos."),
    ] = field(default_factory=dict[str, int])
    not_followed: Annotated[
        str | None,
        Field(
            description="Why the folders are not followed any more; null if they are, or never "
            "were."
        ),
    ] = None


@dataclass(frozen=True, kw_only=True)
class IndexFacts:
    """The live generation; a collection that it does not have is null."""

    generation: int
    default_candidates: int
    model: IndexModel
    images: CollectionFacts | None
    texts: CollectionFacts | None
    alignment_trained: Annotated[
        bool,
        Field(
            description="Whether the alignment of the model was trained. If not, as of a converted"
            " CLIP, searches are ordered by the embeddings, and there is no evidence."
        ),
    ] = True
    untrained: Annotated[
        str | None,
        Field(
            description="Why hits come in random order, as with two towers that were never trained"
            " together; null if nothing is known against the model."
        ),
    ] = None
    changed_at: Annotated[
        datetime | None,
        Field(
            description="When the generation became live, or an item was added or deleted since; "
            "null for an index in a vector database."
        ),
    ] = None
    skipped: Annotated[
        SkippedSummary | None, Field(description="Null for an index in a vector database.")
    ] = None
    calibration: Annotated[
        CalibrationFacts | None, Field(description="Null if the index is not calibrated.")
    ] = None
    follows_folders: Annotated[
        bool, Field(description="Whether it is kept in step with folders of photos.")
    ] = False

    @property
    def collections(self) -> Mapping[Target, CollectionFacts]:
        """The collections that the index has."""
        return present(self.images, self.texts)


def present(images: T | None, texts: T | None) -> dict[Target, T]:
    """Return those of two collections that there are."""
    found: dict[Target, T] = {}
    if images is not None:
        found["images"] = images
    if texts is not None:
        found["texts"] = texts
    return found


@dataclass(frozen=True, kw_only=True)
class ValueRange:
    """Values of one kind in a metadata field that is indexed for filters."""

    kind: Literal["bool", "number", "text"]
    least: Annotated[FieldValue, Field(description="Smallest value.")]
    greatest: Annotated[FieldValue, Field(description="Largest value.")]


@dataclass(frozen=True, kw_only=True)
class FieldCount:
    """A value of a field, and how many items have it."""

    value: FieldValue
    count: int


@dataclass(frozen=True, kw_only=True)
class IndexField(ValueRange):
    """The values of one kind in a metadata field that is indexed for filters."""

    name: str
    values: Annotated[
        list[FieldCount] | None,
        Field(description="All values, the most frequent first; null if there are more than 50."),
    ]


@dataclass(frozen=True, kw_only=True)
class IndexFields:
    """The indexed fields of each collection by name, at most 100; null if there is none."""

    images: list[IndexField] | None
    texts: list[IndexField] | None

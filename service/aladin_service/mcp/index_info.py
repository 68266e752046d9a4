"""What an index contains, told to a model: counts, examples, filter fields, probabilities."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import BaseModel, Field

from aladin_network.types import Target
from aladin_service.client_errors import RefusedInputError
from aladin_service.mcp.access import IndexAccess
from aladin_service.mcp.results import short_text
from aladin_service.search.answers import FieldValue, IndexField, LiveIndexInfo

_EXAMPLES = 5
_MAX_FIELDS = 30
_MAX_VALUES = 12
_MAX_VALUE_CHARS = 80


class ExampleItem(BaseModel):
    """An item of the index."""

    id: str
    text: Annotated[str | None, Field(description="The text, or the caption of a photo.")] = None


class FilterField(BaseModel):
    """A metadata field, with the values of one kind."""

    name: str
    kind: Annotated[str, Field(description="bool, number or text.")]
    least: FieldValue
    greatest: FieldValue
    values: Annotated[
        list[FieldValue], Field(description="The most frequent values, if there are few.")
    ] = []
    example: Annotated[dict[str, Any], Field(description="A value for the argument `filter`.")]


class CollectionInfo(BaseModel):
    """The photos, or the texts, of the index."""

    count: int
    newest: Annotated[list[ExampleItem], Field(description="The items added last.")] = []
    filter_fields: list[FilterField] = []
    further_fields: Annotated[list[str], Field(description="Names of further fields.")] = []


class ProbabilityInfo(BaseModel):
    """Whether hits have probabilities, and what they mean."""

    available: bool
    meaning: str


class IndexInfo(BaseModel):
    """The contents of the index, and how it can be searched."""

    photos: Annotated[CollectionInfo | None, Field(description="Absent if there are none.")] = None
    texts: Annotated[CollectionInfo | None, Field(description="Absent if there are none.")] = None
    probabilities: ProbabilityInfo
    evidence: Annotated[
        bool, Field(description="Whether `explain` can show which region each word fits.")
    ]
    generation: Annotated[int, Field(description="Rises when the index is replaced.")]


async def describe_index(access: IndexAccess) -> IndexInfo:
    """Collect what a model needs to know before it searches.

    An index in a vector database lists neither items nor fields; they are left out.

    Raises:
        ServiceError: If the index cannot be described.
        ServiceUnreachableError: If the service does not answer.
    """
    info = await access.index()
    fields: dict[Target, list[IndexField]] = {"images": [], "texts": []}
    is_listable = True
    try:
        found = await access.fields()
        fields = {"images": found.images or [], "texts": found.texts or []}
    except RefusedInputError as error:
        if error.code != "not_listable":
            raise
        is_listable = False

    async def collection(target: Target) -> CollectionInfo | None:
        side = info.images if target == "images" else info.texts
        if side is None:
            return None
        page = await access.newest(target, _EXAMPLES) if is_listable and side.count else None
        listed = fields[target]
        return CollectionInfo(
            count=side.count,
            newest=[
                ExampleItem(id=item.id, text=short_text(item.text))
                for item in ([] if page is None else page.items)
            ],
            filter_fields=[_filter_field(field) for field in listed[:_MAX_FIELDS]],
            further_fields=[field.name for field in listed[_MAX_FIELDS:]],
        )

    return IndexInfo(
        photos=await collection("images"),
        texts=await collection("texts"),
        probabilities=_probabilities(info),
        evidence=has_evidence(info),
        generation=info.generation,
    )


def has_evidence(info: LiveIndexInfo) -> bool:
    """Return whether the words of a text can be compared with the regions of a photo."""
    return info.images is not None and info.images.token_count > 0 and info.alignment_trained


def _filter_field(field: IndexField) -> FilterField:
    values = [_short(each.value) for each in (field.values or [])[:_MAX_VALUES]]
    condition: object = {"gte": field.least} if field.kind == "number" else _short(field.least)
    if values and field.kind != "number":
        condition = values[0]
    return FilterField(
        name=field.name,
        kind=field.kind,
        least=_short(field.least),
        greatest=_short(field.greatest),
        values=values,
        example={field.name: condition},
    )


def _short(value: FieldValue) -> FieldValue:
    if isinstance(value, str) and len(value) > _MAX_VALUE_CHARS:
        return value[: _MAX_VALUE_CHARS - 1] + "…"
    return value


def _probabilities(info: LiveIndexInfo) -> ProbabilityInfo:
    calibration = info.calibration
    if calibration is None:
        return ProbabilityInfo(
            available=False,
            meaning="The index is not calibrated: hits have scores only, which order them, and"
            " min_probability is an error. Look at the photos to judge whether they match.",
        )
    if calibration.other_photos:
        return ProbabilityInfo(
            available=False,
            meaning="There are no probabilities, since the index's calibration was fitted on"
            " photos of other data. Go by the order of the hits, and look at the photos.",
        )
    fitted = calibration.fitted_on
    return ProbabilityInfo(
        available=True,
        meaning="`probability` is the probability that this hit matches the query;"
        " `no_match` says that nothing in the index does. Of hits with 0.8, about 80 in 100"
        f" match. Fitted to {fitted.photos} photos and {fitted.texts} texts. Answers that they"
        " cannot judge have none, and a note says why; between two photos, or two texts, there are"
        " none.",
    )

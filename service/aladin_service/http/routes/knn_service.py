"""The API of clip-retrieval's clients and front end, answered from this index.

An item's id is the user's string here, a number there; its clients hand ids back as they got
them. `similarity` is the cosine of the embeddings as there, but the order is that of both stages.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal, cast
from urllib.parse import unquote

from fastapi import Depends, Request, Response
from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    FailFast,
    Field,
    ValidationError,
    WithJsonSchema,
)

from aladin_index.search.options import MAX_K, SearchOptions
from aladin_network.errors import InputError
from aladin_network.types import Target
from aladin_service.http.access.rate_limits import charge
from aladin_service.http.bodies import Upload, json_request_docs, read_json_object, run_sized
from aladin_service.http.error_responses import error_docs, invalid_input
from aladin_service.http.query_parts import MAX_ASKED_ID_CHARS
from aladin_service.http.router import ServiceRouter
from aladin_service.http.routes.search import run_search
from aladin_service.http.shared_state import Service, ServiceState, until_disconnect
from aladin_service.photos.photo_url import MAX_URL_CHARS
from aladin_service.search.job import EmbeddingQuery, ItemQuery, PhotoQuery, Query, TextQuery
from aladin_service.work.knn_jobs import WriteKnnMetadata, WriteKnnResults

router = ServiceRouter(tags=["clip-retrieval"])

# The service has one index, and uses it for any index name.
_INDEX_NAME = "aladin"

_NO_EFFECT = "Accepted without effect, as by clip-retrieval without this model."

# No network has embeddings of this size; the search checks the size of the index.
MAX_EMBEDDING_DIM = 16_384


def _at_most(count: int) -> BeforeValidator:
    """Reject a list by its length, before any of its values is validated."""

    def check(value: object) -> object:
        if isinstance(value, list) and (length := len(cast(list[object], value))) > count:
            raise ValueError(f"expected at most {count} values, got {length}")
        return cast(object, value)

    return BeforeValidator(check)


def _drop(value: object) -> None:
    """Discard a value without effect, whatever its size."""


class _FailFast(FailFast):
    """`FailFast` for a union, whose parts must be hashable."""

    def __hash__(self) -> int:
        return hash(self.fail_fast)


# Validation of a list ends at its first invalid value: an error takes a hundred times the memory of
# a value.
Embedding = Annotated[
    list[float],
    _FailFast(),
    Field(min_length=1, max_length=MAX_EMBEDDING_DIM),
    _at_most(MAX_EMBEDDING_DIM),
]
# A program may send an id that looks like a number as a number.
ItemId = Annotated[
    str,
    Field(max_length=MAX_ASKED_ID_CHARS),
    WithJsonSchema({"type": ["string", "number"], "maxLength": MAX_ASKED_ID_CHARS}),
]
ItemIds = Annotated[list[ItemId], FailFast(), Field(max_length=MAX_K), _at_most(MAX_K)]
Ignored = Annotated[Any, BeforeValidator(_drop)]


class KnnBody(BaseModel):
    """A query: the first given field of the first four is searched for; and options."""

    model_config = ConfigDict(
        extra="ignore",
        json_schema_extra={"examples": [{"text": "two dogs in the snow", "num_images": 5}]},
    )

    text: str | None = Field(default=None, description="Words; empty: none.")
    image: Upload | None = Field(default=None, description="A picture file.")
    image_url: str | None = Field(
        default=None,
        max_length=MAX_URL_CHARS,
        description="URL of a photo of this index, as in results, or on a host that the service may"
        " fetch photos from.",
    )
    embedding_input: Embedding | None = Field(
        default=None,
        description="An embedding of the index's own model; the first stage alone.",
    )
    modality: Literal["image", "text"] = Field(default="image", description="What to find.")
    num_images: int = Field(default=100, ge=1, description="Number of results with metadata.")
    num_result_ids: int | None = Field(
        default=None,
        ge=1,
        description=f"Number of results; null: `num_images`. Never more than {MAX_K}.",
    )
    deduplicate: bool = Field(default=False, description="Omit near-duplicates of better results.")
    indice_name: Ignored = Field(default=None, description="Ignored: the service has one index.")
    use_mclip: Ignored = Field(default=None, description=_NO_EFFECT)
    use_safety_model: Ignored = Field(default=None, description=_NO_EFFECT)
    use_violence_detector: Ignored = Field(default=None, description=_NO_EFFECT)
    aesthetic_score: Ignored = Field(default=None, description=_NO_EFFECT)
    aesthetic_weight: Ignored = Field(default=None, description=_NO_EFFECT)

    @property
    def target(self) -> Target:
        """The target in the terms of this service."""
        return "images" if self.modality == "image" else "texts"

    @property
    def k(self) -> int:
        """Number of requested hits."""
        return min(self.num_result_ids or self.num_images, MAX_K)


class MetadataBody(BaseModel):
    """Ids of the items whose metadata is requested."""

    model_config = ConfigDict(extra="ignore", coerce_numbers_to_str=True)

    ids: ItemIds = Field(description="Ids as in results.")
    indice_name: Ignored = Field(default=None, description="Ignored: the service has one index.")


class KnnResult(BaseModel):
    """One item found, with its metadata as additional fields."""

    model_config = ConfigDict(extra="allow")

    id: str
    similarity: float = Field(description="The cosine of the embeddings.")
    url: str | None = Field(default=None, description="URL of the photo; absent without one.")
    caption: str | None = Field(default=None, description="Absent if there is none.")


class KnnMetadata(BaseModel):
    """An item's metadata, including its URL and caption."""

    id: str
    metadata: dict[str, Any]


async def read_knn_body(request: Request, service: Service) -> KnnBody:
    """Read a request as JSON, whatever its content type, as browsers and ClipClient send it.

    Raises:
        InputError: If the body is not JSON, or a field is impossible.
        BodyTooLargeError: If the body exceeds a limit, see `read_json_object`.
    """
    body = await read_json_object(request, service)
    try:
        return await run_sized(service, body.num_bytes, KnnBody.model_validate, body.fields)
    except ValidationError as error:
        raise invalid_input(error) from None


async def read_metadata_body(request: Request, service: Service) -> MetadataBody:
    """Read a request like `read_knn_body`; each id costs as much as a request.

    Raises:
        RateLimitedError: If the client may not request so many items now.
    """
    body = await read_json_object(request, service)
    try:
        validate = MetadataBody.model_validate
        asked = await run_sized(service, body.num_bytes, validate, body.fields)
    except ValidationError as error:
        raise invalid_input(error) from None
    await charge(request, len(asked.ids))
    return asked


@router.post(
    "/knn-service",
    operation_id="search_knn",
    summary="Search as clip-retrieval does",
    response_model=list[KnnResult],
    openapi_extra=json_request_docs(KnnBody.model_json_schema()),
    responses=error_docs(403, 404, 408, 413, 415, 422, 429, 503),
)
async def knn_service(
    request: Request, body: Annotated[KnnBody, Depends(read_knn_body)], service: Service
) -> Response:
    """Find images or texts for words, a photo or an embedding."""
    results = await until_disconnect(request, _search(body, service, _photos_url(request)))
    return Response(results, media_type="application/json")


@router.get(
    "/indices-list", operation_id="list_indices", summary="List the indices for clip-retrieval"
)
async def indices_list() -> list[str]:
    """Return the name of the only index."""
    return [_INDEX_NAME]


@router.post(
    "/metadata",
    operation_id="read_metadata",
    summary="Read the metadata of several items",
    response_model=list[KnnMetadata],
    openapi_extra=json_request_docs(MetadataBody.model_json_schema()),
    responses=error_docs(408, 413, 422, 429, 503),
)
async def metadata(
    request: Request, body: Annotated[MetadataBody, Depends(read_metadata_body)], service: Service
) -> Response:
    """Describe items by their ids; ids that do not exist are skipped."""
    found = await service.workers.call(WriteKnnMetadata(tuple(body.ids), _photos_url(request)))
    return Response(found, media_type="application/json")


async def _search(body: KnnBody, service: ServiceState, photos_url: str) -> bytes:
    query = await _query(body, service, photos_url)
    answered = await run_search(service, query, body.target, SearchOptions(k=body.k))
    return await service.workers.call(
        WriteKnnResults(
            answer=answered.body,
            target=body.target,
            num_described=body.num_images,
            deduplicate=body.deduplicate,
            photos_url=photos_url,
        )
    )


async def _query(body: KnnBody, service: ServiceState, photos_url: str) -> Query:
    if body.text:
        return TextQuery(body.text)
    if body.image is not None:
        return PhotoQuery(body.image)
    if body.image_url is not None:
        if body.image_url.startswith(photos_url):
            # A result used as a query: its photo is stored here, and it may be given by its id. It
            # stays among the hits, as clip-retrieval also finds the picture that it is given.
            item_id = unquote(body.image_url.removeprefix(photos_url))
            return ItemQuery(item_id, include_itself=True)
        return PhotoQuery(*await service.fetcher.fetch([body.image_url]), source="image_url")
    if body.embedding_input is not None:
        return EmbeddingQuery(tuple(body.embedding_input))
    raise InputError("expected one of text, image, image_url and embedding_input, got none")


def _photos_url(request: Request) -> str:
    return f"{request.base_url}v1/images/"

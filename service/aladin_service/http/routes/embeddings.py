"""Embeddings of texts and photos, and the list of models, in OpenAI's shape."""

from __future__ import annotations

import time
from typing import Annotated, Any, Literal, NamedTuple, cast

from fastapi import Depends, Path, Request, Response
from pydantic import BaseModel, Field, ValidationError
from pydantic_core import to_json

from aladin_network.errors import InputError
from aladin_service.http.access.rate_limits import charge
from aladin_service.http.bodies import StrictBody, json_request_docs, read_json_object, run_sized
from aladin_service.http.conventions import OpenAIErrorBody
from aladin_service.http.documents import (
    ANY_MODEL,
    SKIPPED_FIELD,
    GivenDocument,
    SkippedDocument,
    check_model,
    check_pixels,
    count_documents,
    document_schema,
    encode_documents,
    read_documents,
    skipped_documents,
)
from aladin_service.http.error_responses import error_docs, invalid_input
from aladin_service.http.errors import UnknownModelError
from aladin_service.http.router import ServiceRouter
from aladin_service.http.shared_state import Service, ServiceState, until_disconnect
from aladin_service.search.job import Document, EncodedDocument, EncodeJob, ItemQuery, TextQuery
from aladin_service.work.jobs import DescribeModel, ModelFacts, model_name

_MAX_NAME_CHARS = 1000
_OWNER = "aladin-search"


class EmbeddingsBody(StrictBody):
    """Texts and photos to encode."""

    input: Any = Field(description="A text or a photo, or a list of them; no token ids.")
    model: str | None = Field(
        default=None,
        max_length=_MAX_NAME_CHARS,
        description="A name of GET /v1/models, or aladin for the model of the live index.",
    )
    encoding_format: Literal["float", "base64"] | None = Field(
        default=None, description="base64: that of little-endian float32; null: float."
    )
    dimensions: int | None = Field(
        default=None, description="Only the size of the model's embeddings is accepted."
    )
    user: str | None = Field(default=None, description="Ignored.")
    truncate: bool = Field(
        default=False, description="Cut texts that are too long instead of refusing them."
    )
    return_multivector: bool = Field(
        default=False,
        description="Return the tokens of the second stage in `embeddings`, one vector a word or"
        " region, instead of one embedding; as Jina does.",
    )


class Embedding(BaseModel):
    """The embedding of one input, or its tokens."""

    object: Literal["embedding"]
    index: int = Field(description="Position of the input.")
    embedding: list[float] | str | None = Field(
        default=None,
        description="L2-normalised, or its base64; missing for tokens, null for what was left out.",
    )
    embeddings: list[list[float]] | list[str] | None = Field(
        default=None, description="L2-normalised tokens, with `return_multivector`."
    )
    truncated: bool | None = Field(
        default=None, description="True if the text was cut, otherwise missing."
    )


class EmbeddingsUsage(BaseModel):
    """Numbers of tokens that the network read."""

    prompt_tokens: int = Field(
        description="Tokens of the texts, special ones included, and regions of the photos."
    )
    total_tokens: int = Field(description="The same.")


class EmbeddingsAnswer(BaseModel):
    """Embeddings, in the order of the inputs."""

    object: Literal["list"]
    data: list[Embedding] = Field(description="One entry for each input.")
    skipped: list[SkippedDocument] | None = SKIPPED_FIELD
    model: str = Field(description="Name of the model; it changes with the weights.")
    usage: EmbeddingsUsage


class ServedModel(BaseModel):
    """The model of the live index."""

    id: str
    object: Literal["model"]
    created: int = Field(description="When the index received it, in seconds since 1970.")
    owned_by: str
    dimensions: int = Field(description="Size of an embedding.")
    token_dimensions: int = Field(description="Size of a token.")
    max_model_len: int = Field(description="Maximum number of tokens of a text.")


class ServedModels(BaseModel):
    """The models that requests may name: the live one under both of its names."""

    object: Literal["list"]
    data: list[ServedModel]


_INPUT: dict[str, Any] = document_schema(items=False)
_SCHEMA = EmbeddingsBody.model_json_schema()
_SCHEMA["properties"]["input"] = {
    "description": _SCHEMA["properties"]["input"]["description"],
    "anyOf": [*_INPUT["anyOf"], {"type": "array", "minItems": 1, "items": _INPUT}],
}
_ERRORS = (401, 403, 404, 408, 413, 415, 421, 422, 429, 503)

router = ServiceRouter(prefix="/v1", tags=["openai"])


class _Asked(NamedTuple):
    """A valid request, whose model is not checked yet, and its inputs."""

    body: EmbeddingsBody
    documents: list[GivenDocument]


async def read_embeddings_body(request: Request, service: Service) -> _Asked:
    read = await read_json_object(request, service, many=True)
    given = read.fields.get("input")
    inputs: object = given if isinstance(given, list) else [given]
    if given is None:
        raise InputError("input: expected a text or a photo, or a list of them, got none")
    charge(request, count_documents(service, inputs, "input"))
    try:
        return await run_sized(service, read.num_bytes, _validate, read.fields, inputs)
    except ValidationError as error:
        raise invalid_input(error) from None


def _validate(fields: dict[str, Any], inputs: object) -> _Asked:
    body = EmbeddingsBody.model_validate(fields, strict=True)
    if any(isinstance(each, int | list) for each in cast(list[object], inputs)):
        raise InputError("input: token ids are not accepted; expected texts or photos")
    documents = read_documents(inputs, "input", items=False)
    return _Asked(body, documents)


EmbeddingsRequest = Annotated[_Asked, Depends(read_embeddings_body)]


@router.post(
    "/embeddings",
    summary="Create embeddings",
    response_model=EmbeddingsAnswer,
    response_model_exclude_none=True,
    openapi_extra=json_request_docs(_SCHEMA),
    responses=error_docs(*_ERRORS, body=OpenAIErrorBody),
)
async def create_embeddings(
    request: Request, asked: EmbeddingsRequest, service: Service
) -> Response:
    """Encode texts and photos as the items of the index are encoded, in float32.

    The embeddings of texts and photos can be compared by their scalar products.
    """
    return await until_disconnect(request, _encode(asked.body, asked.documents, service))


async def _encode(
    body: EmbeddingsBody, given: list[GivenDocument], service: ServiceState
) -> Response:
    await check_model(service, body.model)
    if body.dimensions is not None:
        await _check_dimensions(service, body)
    await check_pixels(service, given)
    documents: list[Document] = [each for each in given if not isinstance(each, ItemQuery)]
    how = EncodeJob(
        document=TextQuery(""),
        received_s=time.monotonic(),
        truncate=body.truncate,
        form=body.encoding_format or "float",
        multivector=body.return_multivector,
    )
    encoded = await encode_documents(service, documents, how)
    skipped = skipped_documents(encoded, "input", documents)
    # The workers have written the vectors, so that the event loop does not have to. What was left
    # out keeps its place: clients join inputs and vectors by their order.
    name = b"embeddings" if body.return_multivector else b"embedding"
    data = b",".join(
        b'{"object":"embedding","index":%d,"%b":%b%b}' % (place, name, *_written(each))
        for place, each in enumerate(encoded)
    )
    usable = [each for each in encoded if isinstance(each, EncodedDocument)]
    total = sum(each.num_tokens for each in usable)
    rest: dict[str, object] = {
        "model": model_name(usable[0].model_id),
        "usage": {"prompt_tokens": total, "total_tokens": total},
    }
    if skipped is not None:
        rest["skipped"] = [each.model_dump() for each in skipped]
    content = b'{"object":"list","data":[%b],%b' % (data, to_json(rest)[1:])
    return Response(content, media_type="application/json")


def _written(encoded: EncodedDocument | InputError) -> tuple[bytes, bytes]:
    """Return a vector as JSON, and what follows it in its entry."""
    if isinstance(encoded, InputError):
        return b"null", b""
    return encoded.written, b',"truncated":true' if encoded.truncated else b""


async def _check_dimensions(service: ServiceState, body: EmbeddingsBody) -> None:
    facts = await service.workers.call(DescribeModel())
    size = facts.token_dimensions if body.return_multivector else facts.dimensions
    if body.dimensions != size:
        raise InputError(f"dimensions: expected {size}, got {body.dimensions}")


@router.get(
    "/models",
    summary="List the models",
    responses=error_docs(401, 403, 421, 422, 429, 503, body=OpenAIErrorBody),
)
async def list_models(service: Service) -> ServedModels:
    """List the model of the live index: under its own name, and under the name of any."""
    facts = await service.workers.call(DescribeModel())
    return ServedModels(object="list", data=[_served(facts, facts.name), _served(facts, ANY_MODEL)])


@router.get(
    "/models/{model:path}",
    summary="Describe a model",
    responses=error_docs(401, 403, 404, 421, 422, 429, 503, body=OpenAIErrorBody),
)
async def get_model(
    service: Service, model: Annotated[str, Path(max_length=_MAX_NAME_CHARS)]
) -> ServedModel:
    """Describe the model of the live index."""
    facts = await service.workers.call(DescribeModel())
    if model not in (facts.name, ANY_MODEL):
        raise UnknownModelError(model[:100], facts.name)
    return _served(facts, model)


def _served(facts: ModelFacts, name: str) -> ServedModel:
    return ServedModel(
        id=name,
        object="model",
        created=facts.created_s,
        owned_by=_OWNER,
        dimensions=facts.dimensions,
        token_dimensions=facts.token_dimensions,
        max_model_len=facts.max_tokens,
    )

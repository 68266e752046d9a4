"""Re-ranking of documents, in the shape of Cohere's second version, with the fields of Jina."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Annotated, Any, NamedTuple, cast

from fastapi import Depends, Request
from fastapi.responses import JSONResponse
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from aladin_index.search.documents import DocumentScore, ScoredBy
from aladin_network.errors import (
    AladinError,
    InputError,
    OverloadedError,
    TextTooLongError,
    UnknownItemError,
)
from aladin_service.http.access.rate_limits import charge
from aladin_service.http.bodies import StrictBody, json_request_docs, read_json_object, run_sized
from aladin_service.http.conventions import CohereErrorBody
from aladin_service.http.documents import (
    SKIPPED_FIELD,
    GivenDocument,
    SkippedDocument,
    check_model,
    check_pixels,
    count_documents,
    document_schema,
    encode_documents,
    read_document,
    read_documents,
    skipped_documents,
)
from aladin_service.http.error_responses import error_docs, invalid_input
from aladin_service.http.router import ServiceRouter
from aladin_service.http.shared_state import Service, ServiceState, until_disconnect
from aladin_service.search.job import EncodedDocument, EncodeJob, ItemQuery, PhotoQuery, TextQuery
from aladin_service.work.jobs import ScoredDocuments, ScoreDocuments

_MAX_NAME_CHARS = 1000
# Attempts to score documents with the model that encoded them, while it is replaced.
_ATTEMPTS = 3
_RETRY_AFTER_S = 1.0
_API_VERSION = "2"

_DOCUMENT: dict[str, Any] = document_schema(items=True)


class RerankBody(StrictBody):
    """A query, and the documents to order by their relevance to it."""

    model_config = ConfigDict(
        json_schema_extra={
            "examples": [{"query": "two dogs in the snow", "documents": ["a dog", "a red car"]}]
        },
    )

    query: Any = Field(description="A text, a photo or an item of the index.")
    documents: Any = Field(
        description="Texts, photos and items of the index; also vLLM's object with `content`."
    )
    model: str | None = Field(
        default=None,
        max_length=_MAX_NAME_CHARS,
        description="A name of GET /v1/models, or aladin for the model of the live index.",
    )
    top_n: int | None = Field(
        default=None, ge=0, description="Maximum number of results; null or 0: all."
    )
    max_tokens_per_doc: int | None = Field(
        default=None,
        ge=1,
        description="Texts are cut to this number of tokens, and in any case to what the network"
        " reads.",
    )
    return_documents: bool | None = Field(
        default=None, description="Whether results contain the texts; photos are not sent back."
    )
    priority: int | None = Field(default=None, description="Ignored.")


class RankedDocument(BaseModel):
    """The text of a document."""

    text: str = Field(description="The text, or the caption of a photo of the index, or empty.")
    id: str | None = Field(default=None, description="Id of an item of the index.")


class RerankResult(BaseModel):
    """One document."""

    index: int = Field(description="Position of the document in the request.")
    relevance_score: float = Field(
        description="Between 0 and 1: the calibrated probability that the document belongs to the"
        " query, if there is a reliable one, otherwise the squashed `score`."
    )
    scored_by: ScoredBy = Field(
        description="What `relevance_score` is: a probability; the fusion of both stages' scores by"
        " the logistic function; or, by matching, half of one plus the cosine of the embeddings."
    )
    score: float = Field(description="Score of a hit of a search with the same query.")
    document: RankedDocument | None = Field(
        default=None, description="Missing unless `return_documents` is true."
    )


class ApiVersion(BaseModel):
    """Version of the convention."""

    version: str


class RerankTokens(BaseModel):
    """Numbers of tokens that the network read, of query and documents, items excluded."""

    input_tokens: int


class RerankMeta(BaseModel):
    """Cohere's description of an answer."""

    api_version: ApiVersion
    tokens: RerankTokens
    warnings: list[str] | None = Field(
        default=None,
        description="Missing if there are none; how many documents were cut or left out.",
    )


class RerankUsage(BaseModel):
    """The tokens as Jina and vLLM report them."""

    prompt_tokens: int
    total_tokens: int


class RerankAnswer(BaseModel):
    """Documents in the order of their relevance."""

    id: str = Field(description="Id of the request.")
    results: list[RerankResult]
    skipped: list[SkippedDocument] | None = SKIPPED_FIELD
    model: str = Field(description="Name of the model; it changes with the weights.")
    generation: int = Field(description="Generation of the index.")
    meta: RerankMeta
    usage: RerankUsage


_SCHEMA = RerankBody.model_json_schema()
_DOCUMENT_LIST: dict[str, Any] = {"type": "array", "minItems": 1, "items": _DOCUMENT}
_SCHEMA["properties"]["query"] |= _DOCUMENT
_SCHEMA["properties"]["documents"] |= _DOCUMENT_LIST
_ERRORS = error_docs(401, 403, 404, 408, 413, 415, 421, 422, 429, 503, body=CohereErrorBody)


class _Asked(NamedTuple):
    """A valid request, whose model is not checked yet."""

    body: RerankBody
    query: GivenDocument
    documents: list[GivenDocument]


async def read_rerank_body(request: Request, service: Service) -> _Asked:
    read = await read_json_object(request, service, many=True)
    listed: object = read.fields.get("documents")
    if isinstance(listed, dict):  # vLLM's object of the parts of a message
        listed = cast(dict[str, object], listed).get("content")
    charge(request, count_documents(service, listed, "documents"))
    try:
        return await run_sized(service, read.num_bytes, _validate, read.fields, listed)
    except ValidationError as error:
        raise invalid_input(error) from None


def _validate(fields: dict[str, Any], listed: object) -> _Asked:
    if fields.get("query") is None:
        raise InputError("query: expected a text, or an object with one of text, image and id")
    body = RerankBody.model_validate(fields, strict=True)
    query = read_document(body.query, "query", items=True)
    return _Asked(body, query, read_documents(listed, "documents", items=True))


RerankRequest = Annotated[_Asked, Depends(read_rerank_body)]

router = ServiceRouter(tags=["rerank"])


@router.post(
    "/v1/rerank",
    summary="Order documents by relevance",
    response_model=RerankAnswer,
    response_model_exclude_none=True,
    openapi_extra=json_request_docs(_SCHEMA),
    responses=_ERRORS,
)
@router.post("/v2/rerank", include_in_schema=False)
@router.post("/rerank", include_in_schema=False)
async def rerank_documents(
    request: Request, asked: RerankRequest, service: Service
) -> JSONResponse:
    """Order documents by their relevance to a query.

    Also at /v2/rerank, for Cohere's clients, and at /rerank, for vLLM's.
    """
    answer = await until_disconnect(request, _rerank(asked, service, request.state.request_id))
    return JSONResponse(answer.model_dump(exclude_none=True))


async def _rerank(asked: _Asked, service: ServiceState, request_id: str) -> RerankAnswer:
    await check_model(service, asked.body.model)
    query, documents = asked.query, asked.documents
    await check_pixels(service, [query, *documents], needed=("query",))
    if isinstance(query, TextQuery):
        _check_query(query, service)
    encoded, found, scored = await _score(asked.body, query, documents, service)
    skipped = skipped_documents(found, "documents", documents)
    scores = {place: each for place, each in enumerate(found) if isinstance(each, DocumentScore)}
    order = sorted(scores, key=lambda place: (-scores[place].relevance, -scores[place].score))
    read = [each for each in encoded if isinstance(each, EncodedDocument)]
    total = scored.query_tokens + sum(each.num_tokens for each in read)
    counts = {"cut": sum(each.truncated for each in read), "left out": len(skipped or ())}
    warnings = [
        f"{count} of {len(documents)} documents were {what}"
        for what, count in counts.items()
        if count
    ]
    return RerankAnswer(
        id=request_id,
        results=[
            RerankResult(
                index=place,
                relevance_score=scores[place].relevance,
                scored_by=scores[place].scored_by,
                score=scores[place].score,
                document=_shown(documents[place], scores[place])
                if asked.body.return_documents
                else None,
            )
            for place in order[: asked.body.top_n or None]
        ],
        skipped=skipped,
        model=scored.model,
        generation=scored.generation,
        meta=RerankMeta(
            api_version=ApiVersion(version=_API_VERSION),
            tokens=RerankTokens(input_tokens=total),
            warnings=warnings or None,
        ),
        usage=RerankUsage(prompt_tokens=total, total_tokens=total),
    )


def _check_query(query: TextQuery, service: ServiceState) -> None:
    """Refuse a text that no worker would encode, before the documents are encoded."""
    most = service.settings.max_text_chars
    if len(query.text) > most:
        raise TextTooLongError(len(query.text), most, "characters")
    if not query.text.strip():
        raise InputError("query: the text is empty")


class _Scored(NamedTuple):
    """By document what the network read, and the score or why there is none; and the rest."""

    encoded: list[EncodedDocument | InputError | str]
    scores: list[DocumentScore | AladinError]
    answer: ScoredDocuments


async def _score(
    body: RerankBody,
    query: TextQuery | PhotoQuery | ItemQuery,
    documents: Sequence[TextQuery | PhotoQuery | ItemQuery],
    service: ServiceState,
) -> _Scored:
    """Encode the documents that are not items, and score all that can be used."""
    given = [each for each in documents if not isinstance(each, ItemQuery)]
    how = EncodeJob(
        document=TextQuery(""),
        received_s=time.monotonic(),
        truncate=True,
        max_tokens=body.max_tokens_per_doc,
    )
    for _ in range(_ATTEMPTS):
        found = iter(await encode_documents(service, given, how) if given else ())
        encoded = [
            each.item_id if isinstance(each, ItemQuery) else next(found) for each in documents
        ]
        skipped_documents(encoded, "documents", documents)  # refuses if none can be used
        usable = tuple(each for each in encoded if not isinstance(each, InputError))
        answer = await service.workers.call(ScoreDocuments(query, usable))
        if answer is None:
            continue
        of_usable = iter(answer.scores)
        scores: list[DocumentScore | AladinError] = []
        for each in encoded:
            score = each if isinstance(each, InputError) else next(of_usable)
            scores.append(score or UnknownItemError("images and texts", str(each)))
        return _Scored(encoded, scores, answer)
    raise OverloadedError(_RETRY_AFTER_S)


def _shown(document: TextQuery | PhotoQuery | ItemQuery, score: DocumentScore) -> RankedDocument:
    if isinstance(document, ItemQuery):
        return RankedDocument(id=document.item_id, text=score.text or "")
    return RankedDocument(text=document.text if isinstance(document, TextQuery) else "")

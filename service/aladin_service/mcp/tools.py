"""Three tools of agents over an index: search it, show a photo, describe it.

The tools are a client of the HTTP API, so that they answer, refuse and count as it does. The
protocol's SDK is installed by the extra ``mcp``.
"""

from __future__ import annotations

import asyncio
import base64
import io
import json
from collections.abc import Awaitable, Callable
from importlib.metadata import version
from typing import Any

from mcp.server import MCPServer
from mcp.server.mcpserver.exceptions import ToolError
from mcp.server.mcpserver.tools import Tool
from mcp.server.mcpserver.utilities.func_metadata import FuncMetadata
from mcp_types import CallToolResult, ContentBlock, ImageContent, TextContent, ToolAnnotations
from PIL import Image

from aladin_index.facts import FieldValue, IndexField
from aladin_index.search.results import SEARCH_ANSWER, SearchAnswer
from aladin_service.client.calls import Photo
from aladin_service.client.clients import AsyncAladinClient
from aladin_service.client_errors import ClientError, NotFoundError, RefusedInputError
from aladin_service.mcp.arguments import (
    MAX_OFFSET,
    MAX_THUMBNAILS,
    Arguments,
    DescribeArguments,
    SearchArguments,
    ShowArguments,
)

TOOL_NAMES = ("describe", "search", "show")

INSTRUCTIONS = (
    "A searchable collection of photos, found by what they show. Start with describe to learn what"
    " is in it and which metadata can be filtered. Find photos with search (describe the picture in"
    " plain words), and look at one with show. Always refer to photos by their `id`. If an answer"
    " has no_match, or the pictures do not show what was asked for, say that nothing matches."
)
# All tools only read, and only this index.
_READS = ToolAnnotations(
    read_only_hint=True, destructive_hint=False, idempotent_hint=True, open_world_hint=False
)

THUMBNAIL_PX = 192
_JPEG_QUALITY = 88
_DECIMALS = 6
_MAX_TEXT_CHARS = 1000
_MAX_METADATA_CHARS = 1500
_MAX_FIELDS = 30
_MAX_VALUES = 12
_MAX_VALUE_CHARS = 80

# Fields of an answer and of its hits that a model can use.
_ANSWER_FIELDS = (
    "no_match",
    "terms",
    "degraded",
    "unknown_fields",
    "suggestion",
    "read",
    "warnings",
)
_HIT_FIELDS = ("id", "rank", "probability", "text", "uri", "metadata", "found")


async def _search(client: AsyncAladinClient, arguments: SearchArguments) -> CallToolResult:
    answer = await client.search(arguments.search())
    result = _short_answer(answer, arguments)
    if not arguments.thumbnails or arguments.find == "texts":
        return _result(result)
    shown = [hit.id for hit in answer.hits[:MAX_THUMBNAILS]]
    photos = await asyncio.gather(*(_thumbnail(client, photo_id) for photo_id in shown))
    pictures: list[ContentBlock] = []
    for photo_id, photo in zip(shown, photos, strict=True):
        if photo is not None:
            label = TextContent(type="text", text=f"photo {photo_id!r}:")
            pictures += [label, _picture(photo.data, photo.media_type)]
    return _result(result, *pictures)


async def _thumbnail(client: AsyncAladinClient, photo_id: str) -> Photo | None:
    """Return a small picture of a photo, or None if its file does not exist any more."""
    try:
        return await client.photo(photo_id, THUMBNAIL_PX)
    except NotFoundError:
        return None


async def _show(client: AsyncAladinClient, arguments: ShowArguments) -> CallToolResult:
    item = await client.item("images", arguments.id)
    result = {name: value for name, value in item.model_dump(mode="json").items() if value}
    if not arguments.query:
        photo = await client.photo(arguments.id, arguments.size_px)
        return _result(result, _picture(photo.data, photo.media_type))
    maps = await client.explain(arguments.id, arguments.query)
    result["words"] = [
        {
            "word": word.text,
            "score": round(word.score, _DECIMALS),
            "share": round(word.share, 4),
            "box": maps.regions[word.region].box,
        }
        for word in maps.words
    ]
    png = await client.explain_png(arguments.id, arguments.query)
    jpeg = await asyncio.to_thread(_as_jpeg, png, arguments.size_px)
    return _result(result, _picture(jpeg, "image/jpeg"))


def _as_jpeg(png: bytes, size_px: int) -> bytes:
    """Return a drawing as a JPEG, which takes a fraction of the bytes of a photo's PNG."""
    target = io.BytesIO()
    with Image.open(io.BytesIO(png)) as drawing:
        picture = drawing.convert("RGB")
    picture.thumbnail((size_px, size_px))
    picture.save(target, "JPEG", quality=_JPEG_QUALITY)
    return target.getvalue()


async def _describe(client: AsyncAladinClient, arguments: DescribeArguments) -> CallToolResult:
    del arguments
    info = await client.index()
    fields: dict[str, list[IndexField]] = {}
    try:
        found = await client.index_fields()
        fields = {"photos": found.images or [], "texts": found.texts or []}
    except RefusedInputError as error:
        if error.code != "not_listable":  # an index in a vector database lists none
            raise
    calibration = info.calibration
    result: dict[str, Any] = {
        "generation": info.generation,
        "probabilities": calibration is not None and not calibration.other_photos,
    }
    for name, collection in (("photos", info.images), ("texts", info.texts)):
        if collection is not None:
            listed = fields.get(name, [])
            result[name] = {
                "count": collection.count,
                "filter_fields": [_filter_field(field) for field in listed[:_MAX_FIELDS]],
                "further_fields": [field.name for field in listed[_MAX_FIELDS:]],
            }
    return _result(result)


def _filter_field(field: IndexField) -> dict[str, Any]:
    """Describe a metadata field: its kind, its range, and the most frequent values if few."""
    values = [_short_value(each.value) for each in (field.values or [])[:_MAX_VALUES]]
    least, greatest = _short_value(field.least), _short_value(field.greatest)
    return {
        "name": field.name,
        "kind": field.kind,
        **({"values": values} if values else {"least": least, "greatest": greatest}),
    }


def _short_value(value: FieldValue) -> FieldValue:
    return _cut(value, _MAX_VALUE_CHARS) if isinstance(value, str) else value


def _cut(text: str, most: int) -> str:
    return text if len(text) <= most else text[: most - 1] + "…"


def _short_answer(answer: SearchAnswer, arguments: SearchArguments) -> dict[str, Any]:
    """Reduce an answer to what fits into the context of a model.

    Fields without a value are left out.
    """
    plain = SEARCH_ANSWER.dump_python(answer, mode="json")
    following = arguments.offset + arguments.k
    # A least probability leaves out hits of a page that need not be the last one.
    more = len(answer.hits) == arguments.k or (
        arguments.min_probability is not None and answer.hits
    )
    result = {"found": arguments.find} | _given(plain, _ANSWER_FIELDS)
    if more and following <= MAX_OFFSET:
        result["next_offset"] = following
    result["hits"] = [_short_hit(hit) for hit in plain["hits"]]
    return result


def _short_hit(hit: dict[str, Any]) -> dict[str, Any]:
    result = _given(hit, _HIT_FIELDS) | {"score": round(hit["score"], _DECIMALS)}
    if hit["uri"] == hit["id"]:  # of a photo without one of its own
        del result["uri"]
    if hit["text"]:
        result["text"] = _cut(hit["text"], _MAX_TEXT_CHARS)
    kept = _short_metadata(hit["metadata"])
    if len(kept) < len(hit["metadata"]):
        result["metadata"] = kept
        result["omitted_metadata"] = [name for name in hit["metadata"] if name not in kept]
    if hit.get("terms"):
        result["terms"] = [round(term["score"], _DECIMALS) for term in hit["terms"]]
    if hit.get("stack"):
        result["stack"] = hit["stack"] | {"ids": hit["stack"]["ids"][:_MAX_VALUES]}
    found_in = {each["field"]: each["words"] for each in hit["stages"].get("lexical") or []}
    return result | ({"found_in": found_in} if found_in else {})


def _given(values: dict[str, Any], names: tuple[str, ...]) -> dict[str, Any]:
    return {name: value for name in names if (value := values.get(name)) not in (None, "", [], {})}


def _short_metadata(metadata: dict[str, Any]) -> dict[str, Any]:
    """Keep the fields that fit, the shortest first."""
    lengths = {name: len(json.dumps(value)) + len(name) for name, value in metadata.items()}
    kept: set[str] = set()
    room = _MAX_METADATA_CHARS
    for name in sorted(lengths, key=lengths.__getitem__):
        room -= lengths[name]
        if room < 0:
            break
        kept.add(name)
    return {name: value for name, value in metadata.items() if name in kept}


def _result(structured: dict[str, Any], *pictures: ContentBlock) -> CallToolResult:
    # Clients that do not read structured results show the text to the model.
    text = json.dumps(structured, ensure_ascii=False, separators=(",", ":"))
    content: list[ContentBlock] = [TextContent(type="text", text=text), *pictures]
    return CallToolResult(content=content, structured_content=structured)


def _picture(data: bytes, media_type: str) -> ImageContent:
    text = base64.b64encode(data).decode()
    return ImageContent(type="image", data=text, mime_type=media_type)


def make_server(client: AsyncAladinClient) -> MCPServer[Any]:
    """Make the server of the tools."""

    def tool(
        title: str,
        description: str,
        model: type[Arguments],
        run: Callable[[AsyncAladinClient, Any], Awaitable[CallToolResult]],
    ) -> Tool:
        async def answer(arguments: Any) -> CallToolResult:
            try:
                return await run(client, arguments)
            except ClientError as error:  # the model may correct itself
                raise ToolError(str(error)) from None

        return Tool(
            fn=answer,
            name=run.__name__.removeprefix("_"),
            title=title,
            description=description,
            parameters=model.model_json_schema(by_alias=True),
            fn_metadata=FuncMetadata(arg_model=model),
            is_async=True,
            context_kwarg=None,
            annotations=_READS,
        )

    return MCPServer(
        "aladin-search",
        title="ALADIN photo search",
        version=version("aladin-search"),
        instructions=INSTRUCTIONS,
        subscriptions=False,
        tools=[
            tool(
                "Describe the photo index",
                "What the index contains: the number of photos and texts, the metadata fields for"
                " `filter` with their values, and whether hits have probabilities. Call it once"
                " before the first search.",
                DescribeArguments,
                _describe,
            ),
            tool(
                "Search photos or texts",
                "Finds photos by what they show: by a query like a short caption, or by the id of a"
                " photo or a text that they fit. Relations between things count ('a dog left of a"
                " bicycle'). What photos must not show goes into `not`; names written with the"
                " photos need `lexical`. It always returns the nearest photos, matching or not:"
                " look at `probability`, `no_match` and the photos before you claim that one"
                " matches. `score` orders the hits and is no probability. The stored `text` is"
                " somebody's caption. Go on from hits with `like` or `id`.",
                SearchArguments,
                _search,
            ),
            tool(
                "Show a photo",
                "Returns a photo as an image, upright, with its caption and all its metadata; with"
                " `query`, also where in it each word fits best. To compare many photos, search"
                " with thumbnails instead.",
                ShowArguments,
                _show,
            ),
        ],
    )

"""The tools: what a model reads about them, and what they do.

Nothing here depends on the protocol: a tool takes its arguments and an index, and returns a
structured result and pictures.
"""

from __future__ import annotations

import asyncio
import io
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Any, Generic, NamedTuple, TypeVar

from PIL import Image
from pydantic import BaseModel

from aladin_index.search.options import SearchOptions
from aladin_network.types import Target
from aladin_service.client_errors import NotFoundError
from aladin_service.mcp.access import IndexAccess, Query
from aladin_service.mcp.arguments import (
    DEFAULT_PHOTO_PX,
    MAX_PHOTO_PX,
    MAX_THUMBNAILS,
    THUMBNAIL_PX,
    ExplainArguments,
    ItemKind,
    NoArguments,
    PhotoArguments,
    SearchPhotosArguments,
    SearchTextsArguments,
    SimilarArguments,
)
from aladin_service.mcp.index_info import IndexInfo, describe_index, has_evidence
from aladin_service.mcp.results import (
    Explanation,
    SearchResult,
    ShownPhoto,
    explanation,
    search_result,
    shown_photo,
)
from aladin_service.search.answers import LiveIndexInfo

A = TypeVar("A", bound=BaseModel)

_JPEG_QUALITY = 88

INSTRUCTIONS = (
    "A searchable collection of photos, found by what they show. Start with index_info to learn"
    " what is in it and which metadata can be filtered. Find photos with search_photos (describe"
    " the picture in plain words), look at one with get_photo, and check a claim about what a photo"
    " shows with explain. Always refer to photos by their `id`. If an answer has no_match, or the"
    " pictures do not show what was asked for, say that nothing matches."
)


class Picture(NamedTuple):
    """A picture of an answer.

    Attributes:
        data: Picture file.
        media_type: Its media type.
        label: What it shows, or None if the answer has only one.
    """

    data: bytes
    media_type: str
    label: str | None = None


class ToolAnswer(NamedTuple):
    """The answer of a tool.

    Attributes:
        result: Structured result.
        pictures: Pictures, in the order in which they are shown.
    """

    result: BaseModel
    pictures: Sequence[Picture] = ()


@dataclass(frozen=True, kw_only=True)
class Tool(Generic[A]):
    """A tool.

    Attributes:
        name: Name by which it is called.
        title: Name for people.
        description: What a model reads to decide whether and how to call it.
        arguments: Model of its arguments.
        result: Model of its structured result.
        run: Runs it; raises `ServiceError` or `ServiceUnreachableError`.
        is_offered: Tells whether it is of use for an index.
    """

    name: str
    title: str
    description: str
    arguments: type[A]
    result: type[BaseModel]
    run: Callable[[IndexAccess, A], Awaitable[ToolAnswer]]
    is_offered: Callable[[LiveIndexInfo], bool]


async def _search_photos(access: IndexAccess, arguments: SearchPhotosArguments) -> ToolAnswer:
    query = Query(text=arguments.query, **arguments.parts())
    return await _search(
        access, query, "photos", arguments.options(), thumbnails=arguments.include_thumbnails
    )


async def _search_texts(access: IndexAccess, arguments: SearchTextsArguments) -> ToolAnswer:
    query = Query(text=arguments.query, **arguments.parts())
    return await _search(access, query, "texts", arguments.options())


async def _similar(access: IndexAccess, arguments: SimilarArguments) -> ToolAnswer:
    query = Query(item_id=arguments.id, box=arguments.box, **arguments.parts())
    return await _search(
        access,
        query,
        arguments.find,
        arguments.options(),
        thumbnails=arguments.include_thumbnails,
    )


async def _search(
    access: IndexAccess,
    query: Query,
    found: ItemKind,
    options: SearchOptions,
    *,
    thumbnails: bool = False,
) -> ToolAnswer:
    target: Target = "images" if found == "photos" else "texts"
    result = search_result(await access.search(query, target, options), found, options)
    if not thumbnails or found == "texts":
        return ToolAnswer(result)
    shown = result.hits[:MAX_THUMBNAILS]
    pictures = await asyncio.gather(*(_thumbnail(access, hit.id) for hit in shown))
    missing = [hit.id for hit, picture in zip(shown, pictures, strict=True) if picture is None]
    if missing:
        result.notes.append(f"photos without a file: {', '.join(map(repr, missing))}")
    return ToolAnswer(result, [picture for picture in pictures if picture is not None])


async def _thumbnail(access: IndexAccess, photo_id: str) -> Picture | None:
    """Return a small picture of a photo, or None if its file does not exist any more."""
    try:
        photo = await access.photo(photo_id, THUMBNAIL_PX)
    except NotFoundError:
        return None
    return Picture(photo.data, photo.media_type, label=f"photo {photo_id!r}:")


async def _explain(access: IndexAccess, arguments: ExplainArguments) -> ToolAnswer:
    query = Query(text=arguments.query, item_id=arguments.text_id)
    maps = await access.compare(arguments.photo_id, query)
    result = explanation(arguments.photo_id, maps)
    if not arguments.include_image:
        return ToolAnswer(result)
    png = await access.draw(arguments.photo_id, query)
    return ToolAnswer(result, [Picture(await asyncio.to_thread(_as_jpeg, png), "image/jpeg")])


def _as_jpeg(png: bytes) -> bytes:
    """Return a drawing as a JPEG, which takes a fraction of the bytes of a photo's PNG."""
    target = io.BytesIO()
    with Image.open(io.BytesIO(png)) as drawing:
        picture = drawing.convert("RGB")
    picture.thumbnail((MAX_PHOTO_PX, MAX_PHOTO_PX))
    picture.save(target, "JPEG", quality=_JPEG_QUALITY)
    return target.getvalue()


async def _get_photo(access: IndexAccess, arguments: PhotoArguments) -> ToolAnswer:
    item = await access.item("images", arguments.id)
    photo = await access.photo(arguments.id, arguments.size_px)
    result = shown_photo(item, photo.media_type)
    return ToolAnswer(result, [Picture(photo.data, photo.media_type)])


async def _index_info(access: IndexAccess, arguments: NoArguments) -> ToolAnswer:
    del arguments
    return ToolAnswer(await describe_index(access))


TOOLS: tuple[Tool[Any], ...] = (
    Tool(
        name="index_info",
        title="Describe the photo index",
        description="What the index contains: the number of photos and texts, examples, the"
        " metadata fields for `filter` with values and an example of each, and whether hits have"
        " probabilities and what they mean. Call it once before the first search.",
        arguments=NoArguments,
        result=IndexInfo,
        run=_index_info,
        is_offered=lambda _: True,
    ),
    Tool(
        name="search_photos",
        title="Search photos by words",
        description="Finds photos by what they show. Write the query like a short caption;"
        " relations between things count ('a dog left of a bicycle'). What photos must not show"
        " goes into `not`; names written with the photos need `lexical`. It always returns the"
        " nearest photos, matching or not: look at `probability`, `no_match` and the photos before"
        " you claim that one matches. `score` orders the hits and is no probability. The stored"
        " `text` is somebody's caption, and may tell less than the photo. Go on from hits with"
        " `like`, or similar. Pages: repeat with `next_offset`.",
        arguments=SearchPhotosArguments,
        result=SearchResult,
        run=_search_photos,
        is_offered=lambda info: info.images is not None,
    ),
    Tool(
        name="search_texts",
        title="Search texts by words",
        description="Finds texts of the index (captions or other short texts, which are items of"
        " their own) whose meaning is nearest to the query. To find texts that describe a photo,"
        " use similar with the photo's id and find='texts'. To find photos, use search_photos.",
        arguments=SearchTextsArguments,
        result=SearchResult,
        run=_search_texts,
        is_offered=lambda info: info.texts is not None,
    ),
    Tool(
        name="similar",
        title="Find what fits an item",
        description="Finds photos that look like a photo, photos that fit a text, or texts that"
        " describe a photo, by the id of an item of the index; the item itself is not among the"
        " hits. Use it to go on from a hit of another search; `and` and `not` change what is"
        " wanted ('like this photo, but with snow'), and `box` asks for a part of a photo, such as"
        " one thing in it.",
        arguments=SimilarArguments,
        result=SearchResult,
        run=_similar,
        is_offered=lambda _: True,
    ),
    Tool(
        name="explain",
        title="Explain why a photo fits a text",
        description="Shows where in a photo each word of a text fits best: the photo with a box for"
        " the region of each word, and the same as data. Use it to point at things, and to see"
        " which words brought a photo up. The numbers are hints: words such as 'a' and 'of' count"
        " little, and a small share does not prove that something is absent; look at the photo."
        " Boxes are cells of a grid or detected regions, not outlines. It needs the id of a photo,"
        " and the words or the id of a text.",
        arguments=ExplainArguments,
        result=Explanation,
        run=_explain,
        is_offered=has_evidence,
    ),
    Tool(
        name="get_photo",
        title="Look at a photo",
        description="Returns a photo as an image, upright, with its caption and all its metadata."
        f" size_px is the longest side: {DEFAULT_PHOTO_PX} shows what there is, up to"
        f" {MAX_PHOTO_PX} shows details. To compare many, search with include_thumbnails instead.",
        arguments=PhotoArguments,
        result=ShownPhoto,
        run=_get_photo,
        is_offered=lambda info: info.images is not None,
    ),
)
BY_NAME = {tool.name: tool for tool in TOOLS}

"""What the retrievers for LangChain, LlamaIndex and Haystack share.

Searches with and without an event loop; photos, links and scores of the hits.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from os import PathLike
from typing import Any

from aladin_index.search.options import OPTION_NAMES
from aladin_index.search.results import SearchAnswer, SearchHit
from aladin_network.errors import InputError
from aladin_network.types import Target
from aladin_search.index import Index
from aladin_search.integrations.places import Links, OpenIndex, Photos, Place, Service
from aladin_service.client.calls import Photo
from aladin_service.client.pictures import PictureSource
from aladin_service.client.searches import Search

# Key of the metadata of a document under which `Retrieved.details` are; the other keys are those of
# the item's own metadata.
DETAILS = "aladin"

# Longest side of photos and thumbnails in pixels.
PHOTO_PX = 512

_LOG = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True)
class Query:
    """What is searched for: exactly one of the three; empty words with another one do not count.

    Attributes:
        text: Words.
        image: Photo: the path of its file, or its bytes.
        id: Id of an item of the index, which is not among its own hits.
    """

    text: str | None = None
    image: PictureSource | None = None
    id: str | None = None


@dataclass(frozen=True, kw_only=True)
class Retrieved:
    """A hit, with what the documents of the libraries contain.

    Attributes:
        hit: Hit of the search.
        target: Collection of the item.
        links: Where its photo is.
        photo: Bytes of its photo, if they were asked for and there are any.
        details: Scores, ranks, probability, links and evidence, as JSON values.
    """

    hit: SearchHit
    target: Target
    links: Links
    photo: Photo | None
    details: dict[str, Any]

    def metadata(self) -> dict[str, Any]:
        """Return the item's own metadata, with `details` under the key `DETAILS`."""
        return {**self.hit.metadata, DETAILS: self.details}

    @property
    def source(self) -> str | None:
        """Where the item comes from: the file of its photo, its URI, or the URL of its photo."""
        return self.links.path or self.hit.uri or self.links.photo_url


class Retrieval:
    """Searches one collection of an index or a service; may be used from any number of threads."""

    def __init__(
        self,
        *,
        index: Index | str | PathLike[str] | None = None,
        url: str | None = None,
        api_key: str | None = None,
        timeout_s: float = 30.0,
        target: Target = "images",
        options: Mapping[str, Any] | None = None,
        photo_bytes: bool = False,
        photo_px: int | None = PHOTO_PX,
    ) -> None:
        """Connect to nothing yet, and open nothing.

        Args:
            index: Open index, which stays open, or the folder of one, which the first search opens.
            url: URL of a service instead.
            api_key: API key of the service, or None for the one in the environment variable
                ALADIN_API_KEY, if any.
            timeout_s: Timeout of the service, for connecting and for each wait for the network.
            target: Collection to search: "images" or "texts".
            options: Options of every search besides `k` and `filter`, such as
                ``{"explain": True, "min_probability": 0.5}``; docs/SEARCH.md describes them.
            photo_bytes: Whether the bytes of photos are returned, not only where they are.
            photo_px: Longest side of these photos and of the thumbnails that are linked to, in
                pixels; None returns the photos at full size.

        Raises:
            InputError: If not exactly one of `index` and `url` is given, or an option is unknown.
            ConfigError: If the URL is not a valid HTTP URL.
        """
        if (index is None) == (url is None):
            got = "neither" if index is None else "both"
            raise InputError(f"retriever: expected either index or url, got {got}")
        if target not in ("images", "texts"):
            raise InputError(f"retriever: target: expected images or texts, got {target!r}")
        if photo_px is not None and photo_px < 1:
            raise InputError(f"retriever: photo_px: expected at least 1, got {photo_px}")
        self._options = _checked_options(options or {})
        self._target: Target = target
        self._photo_bytes, self._photo_px = photo_bytes, photo_px
        self._place: Place = (
            Service(url, api_key, timeout_s) if url is not None else OpenIndex(index)
        )

    def find(
        self, query: Query, k: int, filter: Mapping[str, Any], **options: Any
    ) -> list[Retrieved]:
        """Search.

        Args:
            query: Query.
            k: Number of hits.
            filter: Filter in the language of this project.
            **options: Further options of this search, in place of those of all searches.

        Returns:
            The hits, best first.

        Raises:
            InputError: If the query, the filter or an option is wrong.
            AladinError: Whatever else the index or the service answers.
        """
        search = self._search(query, k, filter, options)
        answer = self._place.answer(search)
        wanted = self._wanted(answer)
        photos = self._place.photos(wanted, self._photo_px) if wanted else {}
        return self._retrieved(answer, photos)

    async def find_async(
        self, query: Query, k: int, filter: Mapping[str, Any], **options: Any
    ) -> list[Retrieved]:
        """Search without blocking the event loop; as `find`."""
        search = self._search(query, k, filter, options)
        answer = await self._place.answer_async(search)
        wanted = self._wanted(answer)
        photos = await self._place.photos_async(wanted, self._photo_px) if wanted else {}
        return self._retrieved(answer, photos)

    def open(self) -> None:
        """Open the index now, instead of at the first search."""
        self._place.open()

    def close(self) -> None:
        """Release what was opened here; an index that was given open stays open."""
        self._place.close()

    async def close_async(self) -> None:
        """Release what was opened here, the connections of this event loop included."""
        await self._place.close_async()

    def _search(
        self, query: Query, k: int, filter: Mapping[str, Any], options: Mapping[str, Any]
    ) -> Search:
        named = {"text": query.text, "image": query.image, "id": query.id}
        given = [name for name, value in named.items() if value is not None]
        if given[:1] == ["text"] and not query.text and len(given) > 1:
            given.remove("text")
        if len(given) != 1:
            found = ", ".join(given) or "none"
            raise InputError(f"search: expected exactly one of text, image and id, got {found}")
        fields: Any = {**self._options, **_checked_options(options)}
        fields |= {"k": k, "filter": dict(filter)}
        return Search(
            text=query.text if given == ["text"] else None,
            image=query.image,
            id=query.id,
            target=self._target,
            **fields,
        )

    def _wanted(self, answer: SearchAnswer) -> list[str]:
        if not self._photo_bytes or self._target == "texts":
            return []
        return [hit.id for hit in answer.hits]

    def _retrieved(self, answer: SearchAnswer, photos: Photos) -> list[Retrieved]:
        if answer.unknown_fields:
            _LOG.warning("no item has a value in: %s", ", ".join(answer.unknown_fields))
        if answer.degraded:
            _LOG.warning("left out of the answer: %s", ", ".join(answer.degraded))
        found: list[Retrieved] = []
        for hit in answer.hits:
            links = Links()
            if self._target == "images":
                links = self._place.links(hit.id, self._photo_px or PHOTO_PX)
            found.append(
                Retrieved(
                    hit=hit,
                    target=self._target,
                    links=links,
                    photo=photos.get(hit.id),
                    details=_details(answer, hit, self._target, links),
                )
            )
        return found


def _checked_options(options: Mapping[str, Any]) -> dict[str, Any]:
    known = [name for name in OPTION_NAMES if name not in ("k", "filter")]
    unknown = [name for name in options if name not in known]
    if unknown:
        raise InputError(
            f"retriever: options: expected {', '.join(known)}, got {', '.join(unknown)}"
        )
    return dict(options)


def _details(answer: SearchAnswer, hit: SearchHit, target: Target, links: Links) -> dict[str, Any]:
    stages, evidence = hit.stages, hit.evidence
    return {
        "id": hit.id,
        "target": target,
        "rank": hit.rank,
        "score": hit.score,
        "match": asdict(stages.match),
        "align": None if stages.align is None else asdict(stages.align),
        "per_word": hit.per_word,
        "probability": hit.probability,
        "probabilities_reliable": answer.probabilities_reliable,
        "match_probability": answer.match_probability,
        "no_match": answer.no_match,
        "uri": hit.uri,
        **links._asdict(),
        "size_px": None if hit.size_px is None else list(hit.size_px),
        "evidence": None if evidence is None else [asdict(word) for word in evidence],
    }

"""Photos and texts of an index as documents of Haystack.

retriever = AladinRetriever(url="http://127.0.0.1:8000", top_k=5)
documents = retriever.run("two dogs in the snow")["documents"]
"""

from __future__ import annotations

from os import PathLike
from pathlib import Path
from typing import Any

from aladin_network.errors import ConfigError
from aladin_network.types import Target
from aladin_search.index import Index
from aladin_search.integrations.filters import haystack_filter
from aladin_search.integrations.retrieval import PHOTO_PX, Query, Retrieval, Retrieved

try:
    from haystack import Document, component, default_from_dict, default_to_dict
    from haystack.dataclasses import ByteStream
    from haystack.document_stores.types import FilterPolicy, apply_filter_policy
    from haystack.utils import Secret
except ImportError as error:
    raise ConfigError(
        "haystack-ai: version 3 is not installed; pip install 'aladin-search[haystack]'"
    ) from error

_KEY = Secret.from_env_var("ALADIN_API_KEY", strict=False)


@component
class AladinRetriever:
    """Finds photos or texts of an index, or of a running service.

    A document has the id of the item, as its content the caption of the photo or the text, as its
    score the one that orders the hits, and the item's metadata. Beside them ``meta["aladin"]`` has
    the scores and ranks of both stages, the probability, the places of the photo, and the evidence,
    if `options` ask for it; ``meta["file_path"]`` is the file of a photo, where the index is in
    this process. With `photo_bytes`, the photo is the document's blob.
    """

    def __init__(
        self,
        index: Index | str | PathLike[str] | None = None,
        url: str | None = None,
        api_key: Secret | None = _KEY,
        timeout_s: float = 30.0,
        target: Target = "images",
        top_k: int = 10,
        filters: dict[str, Any] | None = None,
        filter_policy: str | FilterPolicy = FilterPolicy.REPLACE,
        options: dict[str, Any] | None = None,
        photo_bytes: bool = False,
        photo_px: int | None = PHOTO_PX,
    ) -> None:
        """Connect to nothing yet, and open nothing.

        Args:
            index: Open index, or the folder of one, which `warm_up` or the first search opens.
            url: URL of a service instead.
            api_key: API key of the service.
            timeout_s: Timeout of the service, for connecting and for each wait for the network.
            target: Collection to search.
            top_k: Number of documents.
            filters: Filter of every search, in Haystack's form.
            filter_policy: Whether the filter of a search replaces this one, or is merged with it.
            options: Further options of every search, such as ``{"explain": True}``.
            photo_bytes: Whether documents contain the bytes of photos.
            photo_px: Longest side of these photos and of linked thumbnails in pixels; None returns
                the photos at full size.

        Raises:
            InputError: If not exactly one of `index` and `url` is given, or the filter or an option
                is wrong.
            ConfigError: If the URL is not a valid HTTP URL.
        """
        haystack_filter(filters)
        self.index, self.url, self.api_key, self.timeout_s = index, url, api_key, timeout_s
        self.target: Target = target
        self.top_k, self.filters, self.options = top_k, filters, options
        self.filter_policy = (
            FilterPolicy.from_str(filter_policy)
            if isinstance(filter_policy, str)
            else filter_policy
        )
        self.photo_bytes, self.photo_px = photo_bytes, photo_px
        self._retrieval = Retrieval(
            index=index,
            url=url,
            api_key=None if api_key is None or url is None else api_key.resolve_value(),
            timeout_s=timeout_s,
            target=target,
            options=options,
            photo_bytes=photo_bytes,
            photo_px=photo_px,
        )

    def warm_up(self) -> None:
        """Open the index."""
        self._retrieval.open()

    @component.output_types(documents=list[Document])
    def run(
        self,
        query: str,
        filters: dict[str, Any] | None = None,
        top_k: int | None = None,
        image: str | Path | ByteStream | None = None,
        id: str | None = None,
        options: dict[str, Any] | None = None,
    ) -> dict[str, list[Document]]:
        """Search.

        Args:
            query: Words; empty where another query is given.
            filters: Filter of this search; see `filter_policy`.
            top_k: Number of documents, or None for that of the component.
            image: Photo to search with, instead of words: the path of its file, or its bytes.
            id: Id of an item to search with, instead of words.
            options: Further options of this search, besides those of the component.

        Returns:
            The `documents`, best first.

        Raises:
            InputError: If the query, the filter or an option is wrong.
        """
        asked, count, tests = self._asked(query, filters, top_k, image, id)
        found = self._retrieval.find(asked, count, tests, **(options or {}))
        return {"documents": [_document(each) for each in found]}

    @component.output_types(documents=list[Document])
    async def run_async(
        self,
        query: str,
        filters: dict[str, Any] | None = None,
        top_k: int | None = None,
        image: str | Path | ByteStream | None = None,
        id: str | None = None,
        options: dict[str, Any] | None = None,
    ) -> dict[str, list[Document]]:
        """Search without blocking the event loop; as `run`."""
        asked, count, tests = self._asked(query, filters, top_k, image, id)
        found = await self._retrieval.find_async(asked, count, tests, **(options or {}))
        return {"documents": [_document(each) for each in found]}

    def _asked(
        self,
        query: str,
        filters: dict[str, Any] | None,
        top_k: int | None,
        image: str | Path | ByteStream | None,
        item_id: str | None,
    ) -> tuple[Query, int, dict[str, Any]]:
        tests = haystack_filter(apply_filter_policy(self.filter_policy, self.filters, filters))
        picture = image.data if isinstance(image, ByteStream) else image
        count = self.top_k if top_k is None else top_k
        return Query(text=query, image=picture, id=item_id), count, tests

    def to_dict(self) -> dict[str, Any]:
        """Describe the component; an open index is named by its folder.

        Raises:
            ValueError: If the API key is a token, not the name of an environment variable.
        """
        index = self.index.path if isinstance(self.index, Index) else self.index
        return default_to_dict(
            self,
            index=None if index is None else str(index),
            url=self.url,
            api_key=None if self.api_key is None else self.api_key.to_dict(),
            timeout_s=self.timeout_s,
            target=self.target,
            top_k=self.top_k,
            filters=self.filters,
            filter_policy=self.filter_policy.value,
            options=self.options,
            photo_bytes=self.photo_bytes,
            photo_px=self.photo_px,
        )

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> AladinRetriever:
        """Make the component that `to_dict` describes."""
        parameters = data["init_parameters"]
        key = parameters.get("api_key")
        if isinstance(key, dict):
            parameters = {**parameters, "api_key": Secret.from_dict(key)}
        return default_from_dict(cls, {**data, "init_parameters": parameters})

    def close(self) -> None:
        """Release what was opened here; an index that was given open stays open."""
        self._retrieval.close()

    async def close_async(self) -> None:
        """Release what was opened here, the connections of this event loop included."""
        await self._retrieval.close_async()


def _document(found: Retrieved) -> Document:
    metadata = found.metadata()
    if found.links.path is not None:
        metadata.setdefault("file_path", found.links.path)
    photo = found.photo
    return Document(
        id=found.hit.id,
        content=found.hit.text,
        blob=None if photo is None else ByteStream(photo.data, mime_type=photo.media_type),
        meta=metadata,
        score=found.hit.score,
    )

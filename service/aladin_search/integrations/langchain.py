"""Photos and texts of an index as documents of LangChain.

retriever = AladinRetriever(url="http://127.0.0.1:8000", k=5)
documents = retriever.invoke("two dogs in the snow", filter={"year": {"gte": 2020}})
"""

from __future__ import annotations

import base64
from os import PathLike
from typing import Any

from pydantic import Field, PrivateAttr, SecretStr

from aladin_network.errors import ConfigError
from aladin_network.types import Target
from aladin_search.index import Index
from aladin_search.integrations.filters import langchain_filter
from aladin_search.integrations.retrieval import (
    DETAILS,
    PHOTO_PX,
    Query,
    Retrieval,
    Retrieved,
)
from aladin_service.client.pictures import PictureSource

try:
    from langchain_core.callbacks import (
        AsyncCallbackManagerForRetrieverRun,
        CallbackManagerForRetrieverRun,
    )
    from langchain_core.documents import Document
    from langchain_core.retrievers import BaseRetriever
    from langchain_core.structured_query import (
        Comparator,
        Comparison,
        Operation,
        Operator,
        StructuredQuery,
        Visitor,
    )
except ImportError as error:
    raise ConfigError(
        "langchain-core: version 1 is not installed; pip install 'aladin-search[langchain]'"
    ) from error


class AladinRetriever(BaseRetriever):
    """Finds photos or texts of an index, or of a running service.

    A document has the id of the item, as its content the caption of the photo or the text, and the
    item's metadata. Beside them ``metadata["aladin"]`` has the scores and ranks of both stages, the
    probability, the places of the photo, and the evidence, if `options` ask for it; with
    `photo_bytes` also ``photo``, a content block of a message. ``metadata["source"]`` is the file,
    the URI or the URL of the photo, unless the item has a field of this name.

    Attributes:
        index: Open index, or the folder of one.
        url: URL of a service instead.
        api_key: API key of the service, or None for the one in the environment variable
            ALADIN_API_KEY, if any.
        timeout_s: Timeout of the service, for connecting and for each wait for the network.
        target: Collection to search.
        k: Number of documents.
        filter: Filter of every search: a dictionary in the language of this project, or a
            `FilterDirective` of LangChain.
        options: Further options of every search, such as ``{"explain": True}``.
        photo_bytes: Whether documents contain the bytes of photos.
        photo_px: Longest side of these photos and of linked thumbnails in pixels; None returns the
            photos at full size.
    """

    index: Index | str | PathLike[str] | None = None
    url: str | None = None
    api_key: SecretStr | None = None
    timeout_s: float = 30.0
    target: Target = "images"
    k: int = 10
    filter: Any = None
    options: dict[str, Any] = Field(default_factory=dict[str, Any])
    photo_bytes: bool = False
    photo_px: int | None = PHOTO_PX

    _retrieval: Retrieval = PrivateAttr()

    def model_post_init(self, context: Any, /) -> None:
        """Check what was given.

        Raises:
            InputError: If not exactly one of `index` and `url` is given, or the filter or an option
                is wrong.
            ConfigError: If the URL is not a valid HTTP URL.
        """
        super().model_post_init(context)
        langchain_filter(self.filter)
        self._retrieval = Retrieval(
            index=self.index,
            url=self.url,
            api_key=None if self.api_key is None else self.api_key.get_secret_value(),
            timeout_s=self.timeout_s,
            target=self.target,
            options=self.options,
            photo_bytes=self.photo_bytes,
            photo_px=self.photo_px,
        )

    def _get_relevant_documents(
        self,
        query: str,
        *,
        run_manager: CallbackManagerForRetrieverRun,
        k: int | None = None,
        filter: Any = None,
        image: PictureSource | None = None,
        id: str | None = None,
        **options: Any,
    ) -> list[Document]:
        """Search; the arguments after `run_manager` are those of `invoke`.

        Args:
            query: Words; empty where another query is given.
            run_manager: Callbacks of the run.
            k: Number of documents, or None for that of the retriever.
            filter: Filter in place of the retriever's.
            image: Photo to search with, instead of words.
            id: Id of an item to search with, instead of words.
            **options: Further options of this search.
        """
        del run_manager
        asked, count, tests = self._asked(query, k, filter, image, id)
        return [_document(each) for each in self._retrieval.find(asked, count, tests, **options)]

    async def _aget_relevant_documents(
        self,
        query: str,
        *,
        run_manager: AsyncCallbackManagerForRetrieverRun,
        k: int | None = None,
        filter: Any = None,
        image: PictureSource | None = None,
        id: str | None = None,
        **options: Any,
    ) -> list[Document]:
        """Search without blocking the event loop."""
        del run_manager
        asked, count, tests = self._asked(query, k, filter, image, id)
        found = await self._retrieval.find_async(asked, count, tests, **options)
        return [_document(each) for each in found]

    def _asked(
        self,
        query: str,
        k: int | None,
        filter: Any,
        image: PictureSource | None,
        item_id: str | None,
    ) -> tuple[Query, int, dict[str, Any]]:
        tests = langchain_filter(self.filter if filter is None else filter)
        count = self.k if k is None else k
        return Query(text=query, image=image, id=item_id), count, tests

    def close(self) -> None:
        """Release what was opened here; an index that was given open stays open."""
        self._retrieval.close()

    async def aclose(self) -> None:
        """Release what was opened here, the connections of this event loop included."""
        await self._retrieval.close_async()


class AladinTranslator(Visitor):
    """Translates structured queries, such as a language model writes, into searches.

    >>> text, arguments = AladinTranslator().visit_structured_query(structured)  # doctest: +SKIP
    >>> documents = retriever.invoke(text, **arguments)  # doctest: +SKIP
    """

    allowed_comparators = (
        Comparator.EQ,
        Comparator.NE,
        Comparator.GT,
        Comparator.GTE,
        Comparator.LT,
        Comparator.LTE,
        Comparator.IN,
        Comparator.NIN,
    )
    allowed_operators = (Operator.AND, Operator.OR, Operator.NOT)

    def visit_comparison(self, comparison: Comparison) -> dict[str, Any]:
        """Return the filter of a comparison.

        Raises:
            InputError: If its operator or its value is not supported.
        """
        return langchain_filter(comparison)

    def visit_operation(self, operation: Operation) -> dict[str, Any]:
        """Return the filter of a condition; as `visit_comparison`."""
        return langchain_filter(operation)

    def visit_structured_query(
        self, structured_query: StructuredQuery
    ) -> tuple[str, dict[str, Any]]:
        """Return the words of a query, and the arguments of `AladinRetriever.invoke`."""
        arguments: dict[str, Any] = {}
        if structured_query.filter is not None:
            arguments["filter"] = langchain_filter(structured_query.filter)
        if structured_query.limit is not None:
            arguments["k"] = structured_query.limit
        return structured_query.query, arguments


def _document(found: Retrieved) -> Document:
    metadata = found.metadata()
    source = found.source
    if source is not None:
        metadata.setdefault("source", source)
    if found.photo is not None:
        metadata[DETAILS]["photo"] = {
            "type": "image",
            "base64": base64.b64encode(found.photo.data).decode("ascii"),
            "mime_type": found.photo.media_type,
        }
    return Document(id=found.hit.id, page_content=found.hit.text or "", metadata=metadata)

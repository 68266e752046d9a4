"""Photos and texts of an index as nodes of LlamaIndex.

retriever = AladinRetriever(url="http://127.0.0.1:8000", similarity_top_k=5)
nodes = retriever.retrieve("two dogs in the snow")
"""

from __future__ import annotations

import base64
from collections.abc import Mapping
from os import PathLike
from typing import Any

from aladin_network.errors import ConfigError, InputError
from aladin_network.types import Target
from aladin_search.index import Index
from aladin_search.integrations.filters import llama_index_filter
from aladin_search.integrations.retrieval import (
    DETAILS,
    PHOTO_PX,
    Query,
    Retrieval,
    Retrieved,
)

try:
    from llama_index.core.base.base_retriever import BaseRetriever
    from llama_index.core.callbacks.base import CallbackManager
    from llama_index.core.schema import ImageNode, NodeWithScore, QueryBundle, TextNode
    from llama_index.core.vector_stores.types import MetadataFilters
except ImportError as error:
    raise ConfigError(
        "llama-index-core: version 0.14 is not installed; pip install 'aladin-search[llama-index]'"
    ) from error


class AladinRetriever(BaseRetriever):
    """Finds photos, as `ImageNode`, or texts, as `TextNode`.

    A node has the id of the item, as its text the caption of the photo or the text itself, and the
    item's metadata. Beside them ``metadata["aladin"]``, which language models and embeddings do not
    see, has the scores and ranks of both stages, the probability, the places of the photo, and the
    evidence, if `options` ask for it. `NodeWithScore.score` is the score that orders the hits.
    """

    def __init__(
        self,
        *,
        index: Index | str | PathLike[str] | None = None,
        url: str | None = None,
        api_key: str | None = None,
        timeout_s: float = 30.0,
        target: Target = "images",
        similarity_top_k: int = 10,
        filters: MetadataFilters | Mapping[str, Any] | None = None,
        options: Mapping[str, Any] | None = None,
        photo_bytes: bool = False,
        photo_px: int | None = PHOTO_PX,
        callback_manager: CallbackManager | None = None,
        verbose: bool = False,
    ) -> None:
        """Connect to nothing yet, and open nothing.

        Args:
            index: Open index, or the folder of one, which the first search opens.
            url: URL of a service instead.
            api_key: API key of the service, or None for the one in the environment variable
                ALADIN_API_KEY, if any.
            timeout_s: Timeout of the service, for connecting and for each wait for the network.
            target: Collection to search.
            similarity_top_k: Number of nodes.
            filters: Filter of every search: `MetadataFilters`, or a dictionary in the language of
                this project.
            options: Further options of every search, such as ``{"explain": True}``.
            photo_bytes: Whether nodes contain the bytes of photos (`image`, in base64).
            photo_px: Longest side of these photos and of linked thumbnails in pixels; None returns
                the photos at full size.
            callback_manager: Callbacks of LlamaIndex.
            verbose: Whether LlamaIndex prints its steps.

        Raises:
            InputError: If not exactly one of `index` and `url` is given, or the filter or an option
                is wrong.
            ConfigError: If the URL is not a valid HTTP URL.
        """
        self._k = similarity_top_k
        self._filter = llama_index_filter(filters)
        self._retrieval = Retrieval(
            index=index,
            url=url,
            api_key=api_key,
            timeout_s=timeout_s,
            target=target,
            options=options,
            photo_bytes=photo_bytes,
            photo_px=photo_px,
        )
        super().__init__(callback_manager=callback_manager, verbose=verbose)

    def _retrieve(self, query_bundle: QueryBundle) -> list[NodeWithScore]:
        """Search with the words or the photo of a query."""
        found = self._retrieval.find(_query(query_bundle), self._k, self._filter)
        return [_node(each) for each in found]

    async def _aretrieve(self, query_bundle: QueryBundle) -> list[NodeWithScore]:
        """Search without blocking the event loop."""
        found = await self._retrieval.find_async(_query(query_bundle), self._k, self._filter)
        return [_node(each) for each in found]

    def close(self) -> None:
        """Release what was opened here; an index that was given open stays open."""
        self._retrieval.close()

    async def aclose(self) -> None:
        """Release what was opened here, the connections of this event loop included."""
        await self._retrieval.close_async()


def _query(bundle: QueryBundle) -> Query:
    texts = bundle.embedding_strs
    if len(texts) > 1:
        raise InputError(f"query: expected one text, got {len(texts)} (custom_embedding_strs)")
    return Query(text=texts[0] if texts else "", image=bundle.image_path)


def _node(found: Retrieved) -> NodeWithScore:
    hidden = [DETAILS]
    fields: dict[str, Any] = {
        "id_": found.hit.id,
        "text": found.hit.text or "",
        "metadata": found.metadata(),
        "excluded_llm_metadata_keys": hidden,
        "excluded_embed_metadata_keys": hidden,
    }
    if found.target == "texts":
        return NodeWithScore(node=TextNode(**fields), score=found.hit.score)
    if found.photo is not None:
        fields["image"] = base64.b64encode(found.photo.data).decode("ascii")
        fields["image_mimetype"] = found.photo.media_type
    links = found.links
    node = ImageNode(image_path=links.path, image_url=links.photo_url, **fields)
    return NodeWithScore(node=node, score=found.hit.score)

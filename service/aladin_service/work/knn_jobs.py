"""Jobs that produce clip-retrieval's response format, including the removal of near-duplicates."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any
from urllib.parse import quote

import numpy as np
from jaxtyping import Float32
from numpy.typing import NDArray
from pydantic_core import to_json

from aladin_index.items.tables import StoredItem
from aladin_index.search.results import SEARCH_ANSWER
from aladin_network.types import Target
from aladin_service.work.worker import Job, Worker

# Cosine similarity from which on clip-retrieval regards two results as duplicates.
_ALIKE = 0.94


def first_of_each_kind(
    embeddings: Float32[NDArray[np.float32], "hits dim"], threshold: float
) -> list[int]:
    """Go through the hits from the best on and keep those unlike all kept before.

    A hit that resembles only an omitted hit is kept: a chain of similar hits is not treated as one
    group.

    Args:
        embeddings: L2-normalised, best hit first.
        threshold: Cosine from which on two hits are considered alike.

    Returns:
        The places that are kept, in order.
    """
    alike = embeddings @ embeddings.T >= threshold
    left_out = np.zeros(len(embeddings), dtype=bool)
    kept: list[int] = []
    for place, like_this in enumerate(alike):
        if not left_out[place]:
            kept.append(place)
            left_out |= like_this
    return kept


# Fields of a result that its clients show; metadata may use the same names.
_URL, _CAPTION = "url", "caption"


@dataclass(frozen=True)
class WriteKnnResults(Job[bytes]):
    """Convert the hits of a search to clip-retrieval's results.

    Attributes:
        answer: A `SearchAnswer` as JSON.
        target: Collection that was searched.
        num_described: Number of results that are described, starting with the best; the others have
            only an ID and a similarity.
        deduplicate: Whether to omit results that look like a better one.
        photos_url: URL prefix to which an image's ID is appended.
    """

    answer: bytes
    target: Target
    num_described: int
    deduplicate: bool
    photos_url: str

    def run(self, worker: Worker) -> bytes:
        """Return a JSON list; items deleted since the search are skipped."""
        side = worker.searcher().index.side(self.target)
        hits = SEARCH_ANSWER.validate_json(self.answer).hits
        items = side.items.by_ids([hit.id for hit in hits])
        found = [(hit, item) for hit, item in zip(hits, items, strict=True) if item is not None]
        if self.deduplicate and found:
            embeddings = side.embeddings([item.row for _, item in found])
            places = first_of_each_kind(embeddings, _ALIKE)
            found = [found[place] for place in places]
        results: list[dict[str, Any]] = []
        for place, (hit, item) in enumerate(found):
            described = _describe(item, self.photos_url) if place < self.num_described else {}
            # The cosine similarity, as in clip-retrieval, whatever score determines the order.
            match = {"id": hit.id, "similarity": hit.stages.match.score}
            results.append({**described, **match})
        return _write(results)


@dataclass(frozen=True)
class WriteKnnMetadata(Job[bytes]):
    """Return metadata of items; if an ID is both an image and a text, of the image.

    Attributes:
        ids: IDs of items.
        photos_url: URL prefix to which an image's ID is appended.
    """

    ids: tuple[str, ...]
    photos_url: str

    def run(self, worker: Worker) -> bytes:
        """Return a JSON list in the order of the IDs; missing items are skipped."""
        index = worker.searcher().index
        known: dict[str, StoredItem] = {}
        for target in index.manifest.targets:
            missing = [item_id for item_id in self.ids if item_id not in known]
            items = index.side(target).items.by_ids(missing)
            known.update((item.id, item) for item in items if item is not None)
        return _write(
            [
                {"id": item_id, "metadata": _describe(known[item_id], self.photos_url)}
                for item_id in self.ids
                if item_id in known
            ]
        )


def _write(results: list[dict[str, Any]]) -> bytes:
    # Empty cells of a table may have become NaN in the metadata, which JSON does not have.
    return to_json(results, inf_nan_mode="null")


def _describe(item: StoredItem, photos_url: str) -> dict[str, Any]:
    """Return an item's metadata, with the URL of its photo and its caption if there are any.

    A URL and a caption of the metadata stay: an index of another's embeddings has its pictures
    elsewhere. Neither is ever null, which the front end cannot show.
    """
    described = dict(item.metadata)
    own = {_URL: _photo_url(item, photos_url), _CAPTION: item.text}
    for name, value in own.items():
        if not isinstance(described.get(name), str):
            described.pop(name, None)
            if value is not None:
                described[name] = value
    return described


def _photo_url(item: StoredItem, photos_url: str) -> str | None:
    if item.uri is not None and item.uri.startswith(("http://", "https://")):
        return item.uri
    return None if item.photo is None else photos_url + quote(item.id, safe="")

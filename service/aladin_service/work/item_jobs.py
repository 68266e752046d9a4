"""Jobs of workers for readers of the page: lists of items and fields, and maps of the evidence."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from aladin_index.items.field_tables import FieldValues
from aladin_index.items.filters import Filter
from aladin_index.search.listing import ListedPage, ListOrder, list_fields, list_items
from aladin_network.types import Target
from aladin_service.evidence.explained import EvidenceMaps, map_pair
from aladin_service.evidence.pairs import PairQuery, find_pair
from aladin_service.work.worker import Job, JobQueueName, Worker


@dataclass(frozen=True)
class ListItems(Job[tuple[ListedPage, int]]):
    """List items in an order.

    Attributes:
        target: Images or texts.
        filter: Filter that the items pass, or None.
        order: Order of the items.
        after_id: Id of the item after which the page begins, or None.
        count: Maximum number of items.
    """

    target: Target
    filter: Filter | None
    order: ListOrder
    after_id: str | None
    count: int

    def run(self, worker: Worker) -> tuple[ListedPage, int]:
        """Return a page of items, and the generation that it is from."""
        index = worker.searcher().index
        collection = index.collection(self.target, self.filter)
        return list_items(collection, self.order, self.after_id, self.count), index.generation


@dataclass(frozen=True)
class ListFields(Job[Mapping[Target, dict[str, list[FieldValues]]]]):
    """Describe the metadata fields of each collection."""

    def run(self, worker: Worker) -> Mapping[Target, dict[str, list[FieldValues]]]:
        """Return the values of each field by its name."""
        index = worker.searcher().index
        return {target: list_fields(index.collection(target)) for target in index.manifest.targets}


@dataclass(frozen=True)
class MapEvidence(Job[EvidenceMaps]):
    """Compare each word of a text, or each region in a box, with each region of a photo.

    Attributes:
        query: Text or photo that asks.
        item_id: Id of the indexed photo or text that it is compared with.
    """

    query: PairQuery
    item_id: str

    @property
    def queue(self) -> JobQueueName:
        """Queue of the drawings: a photo may have to be encoded."""
        return "picture"

    def run(self, worker: Worker) -> EvidenceMaps:
        """Return a map of the photo for each word or region."""
        searcher = worker.searcher()
        pair = find_pair(searcher, self.query, self.item_id, worker.live.photos_root)
        return map_pair(searcher, pair, worker.encode(searcher, pair.query))

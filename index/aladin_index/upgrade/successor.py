"""The items that the new model has encoded, as an index that is searched by it.

`SuccessorIndex` is a `SearchBackend` of the new model beside that of the live generation: the same
items in the same rows, as far as they are encoded and not deleted meanwhile.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path

import numpy as np
from jaxtyping import Float
from numpy.typing import NDArray
from pyroaring import BitMap

from aladin_index.build.shards import ShardFormat
from aladin_index.format.manifest import CollectionEntry, Manifest, ModelEntry
from aladin_index.generations.reader import SearchIndex
from aladin_index.items.filters import Filter
from aladin_index.items.selection import Selection
from aladin_index.search.backend import Collection, Everything, Items, Ordered, SecondStageQuery
from aladin_index.search.live_collection import LiveCollection
from aladin_index.upgrade.parts import EncodedRows, PartsReader
from aladin_network.checkpoint_files import Checkpoint
from aladin_network.types import Modality, Target


@dataclass(frozen=True, kw_only=True)
class RestCollection(LiveCollection):
    """The live items that the new model has not encoded.

    Attributes:
        encoded: The rows that are encoded, which searches do not find.
    """

    encoded: EncodedRows

    @cached_property
    def selection(self) -> Selection:
        """The live rows that pass the filter and are not encoded."""
        rows = self.base.entry.count if self.changes is None else self.changes.rows
        whole = super().selection
        found = BitMap(range(rows)) if whole is None else whole.bitmap
        return Selection(found - self.encoded.bitmap, rows)


@dataclass(frozen=True)
class SuccessorCollection:
    """A snapshot of one collection of a `SuccessorIndex`; see `Collection` for its methods.

    Attributes:
        live: The live collection, whose items, deletions and filter these are.
        entry: Entry of the new encodings.
        encoded: The rows that are encoded.
        rest: The live items that are not encoded.
    """

    live: LiveCollection
    entry: CollectionEntry
    encoded: EncodedRows
    rest: RestCollection

    @property
    def target(self) -> Target:
        """Target of the collection: images or texts."""
        return self.live.target

    @property
    def count(self) -> int:
        """Number of items that a search without a filter may find."""
        changes, rows = self.live.changes, self.encoded.rows
        live = None if changes is None else changes.live
        return len(rows) if live is None else int(live.mask[rows[rows < live.size]].sum())

    @property
    def share(self) -> float:
        """Share of the live collection's items that are encoded."""
        return self.count / max(self.live.count, 1)

    @property
    def has_tokens(self) -> bool:
        """Whether the collection has tokens for re-ranking."""
        return self.entry.token_count > 0

    @property
    def items(self) -> Items:
        """Ids, texts and metadata."""
        return self.live.items

    def order(
        self,
        query: NDArray[np.float32],
        count: int,
        num_candidates: int,
        second_stage: SecondStageQuery | None = None,  # noqa: ARG002
    ) -> Ordered:
        """Order the first `count` items by their cosines; all of them are compared."""
        rows, match = self.encoded.nearest(query, max(count, num_candidates), self.live.selection)
        candidates = min(num_candidates, len(rows))
        return Ordered(rows[:count], match[:count], candidates)

    def everything(
        self,
        query: NDArray[np.float32],
        second_stage: SecondStageQuery,  # noqa: ARG002
    ) -> Everything:
        """Return all items that a search may find, without bounds of their alignment scores."""
        rows, match = self.encoded.nearest(query, None, self.live.selection)
        order = np.argsort(rows)
        upper = np.full(len(rows), np.inf, dtype=np.float32)
        return Everything(rows[order], match[order], upper)

    def align(
        self,
        query: Float[np.ndarray, "query_tokens dim"],
        modality: Modality,
        rows: NDArray[np.int64],
    ) -> NDArray[np.float32]:
        """Score items by late interaction."""
        return self.encoded.align(query, modality, rows)

    def similarities(
        self,
        query: Float[np.ndarray, "query_tokens dim"],
        modality: Modality,
        rows: NDArray[np.int64],
    ) -> list[NDArray[np.float32]]:
        """Compare tokens."""
        return self.encoded.similarities(query, modality, rows)

    def lengths(self, rows: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the number of tokens of some items."""
        return self.encoded.lengths(rows)

    def tokens(self, row: int) -> Float[np.ndarray, "tokens dim"]:
        """Read the tokens of one item, in float32."""
        return self.encoded.tokens(np.array([row])).values.astype(np.float32)

    def embedding(self, row: int) -> Float[np.ndarray, " dim"]:
        """Read the embedding of one item."""
        return self.embeddings([row])[0]

    def embeddings(self, rows: Sequence[int]) -> Float[np.ndarray, "rows dim"]:
        """Read the embeddings of at least one item."""
        return self.encoded.embeddings(np.array(rows, dtype=np.int64))


class SuccessorIndex:
    """The live generation as far as the new model has encoded it; a `SearchBackend`.

    Attributes:
        live: The live generation; closed by its owner.
        checkpoint: The new model.
        manifest: Manifest of the live generation with the new model and without what was fitted to
            the old one: no calibration, correction or tuning.
    """

    def __init__(self, live: SearchIndex, model: ModelEntry, checkpoint: Checkpoint) -> None:
        """Open nothing yet.

        Args:
            live: The live generation.
            model: Manifest entry of the new model.
            checkpoint: The new model, loaded.
        """
        self.live = live
        self.checkpoint = checkpoint
        form = ShardFormat.of(checkpoint.model)
        self._parts: dict[Target, PartsReader] = {
            target: PartsReader(live.path, target, form) for target in live.manifest.targets
        }
        entries = {target: _entry_of(entry, form) for target, entry in live.manifest.sides.items()}
        self.manifest: Manifest = replace(
            live.manifest,
            model=model,
            images=entries.get("images"),
            texts=entries.get("texts"),
            calibration=None,
            fitted_photos_indexed=None,
            correction=None,
        )

    @property
    def path(self) -> Path:
        """The index folder."""
        return self.live.path

    @property
    def generation(self) -> int:
        """Number of the live generation."""
        return self.live.generation

    @property
    def place(self) -> Hashable:
        """Identity of the files of the live generation."""
        return self.live.place

    def encoded(self, target: Target) -> EncodedRows:
        """Return the rows of one collection that are encoded now.

        Raises:
            IndexCorruptError: If a part is damaged.
        """
        return self._parts[target].snapshot()

    def side(self, target: Target, filter: Filter | None = None) -> SuccessorCollection:
        """Return one collection as it is now.

        Raises:
            NoSuchTargetError: If the index was built without this collection.
            IndexCorruptError: If the changes of the collection or a part cannot be read.
        """
        return self.over(self.live.side(target, filter))

    def over(self, live: Collection) -> SuccessorCollection:
        """Return what is encoded of a snapshot of a live collection, with its filter.

        Raises:
            IndexCorruptError: If a part cannot be read.
        """
        assert isinstance(live, LiveCollection)  # of an index in files
        entry = self.manifest.side(live.target)
        assert entry is not None  # as the live generation has the collection
        encoded = self.encoded(live.target)
        count = len(encoded.rows)
        entry = replace(entry, count=count, token_count=entry.token_count if count else 0)
        rest = RestCollection(
            base=live.base, changes=live.changes, filter=live.filter, encoded=encoded
        )
        return SuccessorCollection(live, entry, encoded, rest)

    def check_health(self) -> None:
        """Do nothing: the files are available for as long as the index is open."""

    def warm(self) -> None:
        """Do nothing: parts are read when they are searched."""

    def close(self) -> None:
        """Do nothing: the live generation is closed by its owner."""


def _entry_of(entry: CollectionEntry, form: ShardFormat) -> CollectionEntry:
    """Return the entry of a collection that is encoded in another form."""
    return replace(
        entry,
        embedding_dim=form.embedding_dim,
        token_dim=form.codec.dim,
        # How many there are is found with the parts; it matters that there are some.
        token_count=1,
        token_dtype=form.codec.dtype,
        keep_regions=None,
        tuning=None,
        bounds=None,
        corrected=False,
    )

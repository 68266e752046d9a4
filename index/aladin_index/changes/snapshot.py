"""What was added to a side and removed from it, as it was at one moment."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from aladin_index.items.filters import Filter
from aladin_index.items.selection import Selection
from aladin_index.items.tables import StoredItem
from aladin_index.tokens.store import TokenStore

if TYPE_CHECKING:
    from aladin_index.changes.reader import ChangesReader


@dataclass(frozen=True, kw_only=True)
class CollectionChanges:
    """Changes of one side; later ones do not reach it.

    Rows below `base_count` are the generation's, those from there on were added, in this order.

    Attributes:
        reader: of the database that the changes are in; reads tokens and items when asked.
        base_count: number of items of the generation.
        embeddings: (added, d_match) float32 of all that was ever added.
        token_counts: (added,) int64, number of tokens of each.
        removed: rows of either kind that are not to be found any more, int64.
        sequence: number of the last removal, for those who ask what came after.
    """

    reader: ChangesReader
    base_count: int
    embeddings: NDArray[np.float32]
    token_counts: NDArray[np.int64]
    removed: NDArray[np.int64]
    sequence: int

    @property
    def rows(self) -> int:
        """Number of rows, those included that were removed; the next one has this number."""
        return self.base_count + len(self.embeddings)

    @property
    def count(self) -> int:
        """Number of items that are left."""
        return self.rows - len(self.removed)

    @property
    def is_empty(self) -> bool:
        """Whether nothing was ever added or removed."""
        return len(self.embeddings) == len(self.removed) == 0

    @cached_property
    def live(self) -> Selection | None:
        """The rows that are left; None: all."""
        if len(self.removed) == 0:
            return None
        mask = np.ones(self.rows, dtype=np.bool_)
        mask[self.removed] = False
        return Selection(mask)

    def is_live(self, row: int) -> bool:
        """Whether a search may find this row."""
        return row < self.rows and (self.live is None or bool(self.live.mask[row]))

    def split(self, selection: Selection | None) -> tuple[Selection | None, Selection | None]:
        """Divide a selection of live rows.

        Returns:
            What it selects of the generation's rows, and of the added ones counted from 0; None
            where that is all of them.
        """
        if selection is None or selection is self.live:
            return self._live_parts
        return self._parts(selection)

    @cached_property
    def _live_parts(self) -> tuple[Selection | None, Selection | None]:
        if self.live is None:
            return None, None
        of_base, of_added = self._parts(self.live)
        return (
            None if of_base.count == self.base_count else of_base,
            None if of_added.count == len(self.embeddings) else of_added,
        )

    def _parts(self, selection: Selection) -> tuple[Selection, Selection]:
        mask = selection.mask
        return Selection(mask[: self.base_count]), Selection(mask[self.base_count :])

    def select(self, passing: Selection, filter: Filter) -> Selection:
        """Return the live rows that pass a filter.

        Args:
            passing: rows of the generation that pass it.
            filter: to pass.
        """
        mask = np.concatenate([passing.mask, self.reader.passing(filter, len(self.embeddings))])
        return Selection(mask if self.live is None else mask & self.live.mask)

    def embeddings_of(self, rows: NDArray[np.int64]) -> NDArray[np.float32]:
        """Return the embeddings of added rows, (rows, d_match)."""
        return self.embeddings[rows - self.base_count]

    def lengths(self, rows: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the number of tokens of added rows."""
        return self.token_counts[rows - self.base_count]

    def tokens(self, rows: NDArray[np.int64]) -> TokenStore:
        """Read the tokens of added rows; they are rows 0, 1, 2 ... of what is returned."""
        return self.reader.tokens(rows)

    def by_rows(self, rows: Sequence[int]) -> list[StoredItem]:
        """Read added items, in any order."""
        return self.reader.items_by_rows(rows)

    def by_id(self, item_id: str) -> StoredItem | None:
        """Read the added item with this id that is live; None where there is none."""
        found = self.reader.items_by_id(item_id)
        return next((item for item in found if self.is_live(item.row)), None)

    def ids(self) -> list[tuple[str, int]]:
        """Read the ids and rows of all that was ever added."""
        return [(item_id, row) for item_id, row in self.reader.ids() if row < self.rows]

"""What the collections of an index are called in an engine.

For each generation there are NAME_000001_images and NAME_000001_texts and, for its record,
NAME_000001_record. NAME itself is an alias of the record of the live generation, so that both sides
change at once.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

from index.settings import TARGETS, Target

Part = Target | Literal["record"]
# The record first: what has none is no whole generation, should a removal be cut short.
PARTS: tuple[Part, ...] = ("record", *TARGETS)


@dataclass(frozen=True)
class CollectionNames:
    """The collections of one index.

    Attributes:
        name: of the index, see `index.remote.location`.
    """

    name: str

    def of(self, generation: int, part: Part) -> str:
        """Return what a part of a generation is called."""
        return f"{self.name}_{generation:06d}_{part}"

    def generation_of(self, collection: str) -> int | None:
        """Return the generation that a collection is of; None: it is not of this index."""
        found = re.fullmatch(
            rf"{re.escape(self.name)}_(\d{{6,}})_(?:{'|'.join(PARTS)})", collection
        )
        return None if found is None else int(found[1])

    def generations_of(self, collections: Iterable[str]) -> list[int]:
        """List the generations that some collections are of, ascending."""
        numbers = {self.generation_of(collection) for collection in collections}
        return sorted(number for number in numbers if number is not None)

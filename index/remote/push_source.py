"""An index of files as it is pushed to an engine: all that is live in it at one moment."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from aladin.strict_config import dump_config
from index.ann.recall import sample_queries
from index.building.side_writer import EncodedPart
from index.live_parts import live_parts
from index.live_side import LiveSide
from index.manifest import Manifest
from index.reader import SearchIndex
from index.remote.client import SideSchema
from index.remote.entry import Entry
from index.remote.location import EngineLocation
from index.settings import TARGETS, Target
from index.tokens.codec import TokenCodec
from index.tokens.rounding import ErrorFeedback
from index.tokens.sample import feedback_from

# What the engine finds is compared with the exact nearest of so many items.
_RECALL_QUERIES = 100


class PushSource:
    """What is pushed; changes of the index that come later are not seen.

    Attributes:
        manifest: of the index.
        sides: its images, its texts or both.
    """

    def __init__(self, index: SearchIndex) -> None:
        """Look at the index, which has to stay open."""
        self.manifest: Manifest = index.manifest
        self.sides: dict[Target, LiveSide] = {
            target: index.side(target) for target in index.manifest.targets
        }

    def identity(self, location: EngineLocation, ann_recall: float | None) -> bytes:
        """Return what tells this push from any other, for one that was cut to go on.

        Args:
            location: that is pushed to; how the engine is to index is part of what is pushed.
            ann_recall: that was asked for; None: as of the index.
        """
        manifest = json.dumps(dump_config(self.manifest), sort_keys=True).encode("utf-8")
        changes = {
            target: None if side.changes is None else [side.changes.rows, side.changes.sequence]
            for target, side in self.sides.items()
        }
        asked = dump_config(location)
        # The same engine may be reached by another address the next time.
        del asked["url"]
        data = {
            "manifest": hashlib.sha256(manifest).hexdigest(),
            "changes": changes,
            "location": asked,
            "ann_recall": ann_recall,
        }
        return json.dumps(data, sort_keys=True).encode("utf-8")

    def codec(self, target: Target) -> TokenCodec:
        """Return the codec of a side, with what the writers of the engine's index round for."""
        return replace(self.sides[target].base.tokens.codec, feedback=self._feedback(target))

    def schema(self, target: Target) -> SideSchema:
        """Return what an engine has to know of a side."""
        side = self.sides[target]
        longest = int(np.diff(side.base.tokens.offsets).max(initial=0))
        if side.changes is not None:
            longest = max(longest, int(side.changes.token_counts.max(initial=0)))
        return SideSchema(
            embedding_dim=side.entry.embedding_dim,
            codec=side.base.tokens.codec,
            max_tokens=longest,
            count=side.count,
        )

    def parts(self, target: Target, items_at_a_time: int) -> Iterator[EncodedPart]:
        """Yield the items of a side in the order of their rows, always the same."""
        yield from live_parts(self.sides[target], items_at_a_time)

    def queries(self, target: Target) -> NDArray[np.float32]:
        """Return embeddings to ask the engine with, (queries, d_match).

        As in a real search they are of items of the other side, if it has any.
        """
        others = [side for each, side in self.sides.items() if each != target]
        asking = [each.base.embeddings for each in (*others, self.sides[target])]
        return sample_queries(next(filter(len, asking), asking[0]), _RECALL_QUERIES)

    def _feedback(self, target: Target) -> ErrorFeedback | None:
        """Learn from the other side how tokens of this one are best rounded, as a build does."""
        if self.sides[target].entry.token_dtype == "float16":
            return None
        for other in TARGETS:
            if other != target and other in self.sides:
                return feedback_from(self.sides[other].base.tokens)
        return None


def entries_of(part: EncodedPart) -> list[Entry]:
    """Return items as an engine takes them; the arrays are views."""
    ends = np.cumsum(part.lengths).tolist()
    starts = [0, *ends[:-1]]
    return [
        Entry(item, part.embeddings[place], part.tokens.take(slice(starts[place], ends[place])))
        for place, item in enumerate(part.items)
    ]

"""Both folders of a push: the index of files that it reads, and the folder that it writes.

`PushSource` has all items of an index of files that are live at one moment. `NearestSoFar` collects
the exact nearest items of sample queries while the items are read, to choose the search width in
the engine that finds enough of them. The written folder has the model, the uploaded photos, and
the location of the index in the vector database.
"""

from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import Generator, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from aladin_index.ann.search_width import ChosenSearchWidth, choose, is_saturated, sample_queries
from aladin_index.engines.client import CollectionSchema, EngineClient, EngineItem, EngineQuery
from aladin_index.format.disk import lock_file
from aladin_index.format.layout import CURRENT, MODEL, EngineLocation, write_location
from aladin_index.format.manifest import Manifest, ModelEntry, RecallPoint
from aladin_index.format.models import copy_model, has_model, model_folder, upgrade_model_folder
from aladin_index.generations.collection_writer import EncodedPart, live_parts
from aladin_index.generations.reader import SearchIndex
from aladin_index.items.tables import StoredItem
from aladin_index.search.live_collection import LiveCollection
from aladin_index.tokens.codec import TokenCodec
from aladin_index.tokens.quantisation import ErrorFeedback
from aladin_index.tokens.store import feedback_from
from aladin_network.config import dump_config
from aladin_network.errors import ConfigError, IndexWriteError
from aladin_network.files import atomic_file, lock_to_write, make_folder
from aladin_network.types import TARGETS, Target

# Number of queries for which the results are compared with the exact nearest items.
_RECALL_QUERIES = 100

# Vector databases sum cosines in another order, and some with half the width of the processor's
# registers.
_ROUNDING = 1e-6


class PushSource:
    """Items to push; later changes of the index are not seen.

    Attributes:
        manifest: Manifest of the index.
        sides: Collections of the index: images, texts or both.
    """

    def __init__(self, index: SearchIndex) -> None:
        """Read the index, which has to stay open."""
        self.manifest: Manifest = index.manifest
        self.sides: dict[Target, LiveCollection] = {
            target: index.side(target) for target in index.manifest.targets
        }

    def identity(self, location: EngineLocation, ann_recall: float | None) -> bytes:
        """Return the identity of this push, by which an interrupted one is continued.

        Args:
            location: Location to push to; the index options of the vector database are part of the
                identity.
            ann_recall: Requested recall, or None for that of the index.
        """
        entries = dump_config(self.manifest)
        del entries["replaces"]  # which tells nothing of the items
        manifest = json.dumps(entries, sort_keys=True).encode("utf-8")
        changes = {
            target: None if side.changes is None else [side.changes.rows, side.changes.sequence]
            for target, side in self.sides.items()
        }
        asked = dump_config(location)
        # The same vector database may have another address the next time.
        del asked["url"]
        data = {
            "manifest": hashlib.sha256(manifest).hexdigest(),
            "changes": changes,
            "location": asked,
            "ann_recall": ann_recall,
        }
        return json.dumps(data, sort_keys=True).encode("utf-8")

    def codec(self, target: Target) -> TokenCodec:
        """Return the codec of a collection, with the error feedback for items added later."""
        return replace(self.sides[target].base.tokens.codec, feedback=self._feedback(target))

    def schema(self, target: Target) -> CollectionSchema:
        """Return what a vector database has to know about a collection."""
        side = self.sides[target]
        longest = int(np.diff(side.base.tokens.offsets).max(initial=0))
        if side.changes is not None:
            longest = max(longest, int(side.changes.token_counts.max(initial=0)))
        return CollectionSchema(
            embedding_dim=side.entry.embedding_dim,
            codec=side.base.tokens.codec,
            max_tokens=longest,
            count=side.count,
        )

    def parts(self, target: Target, items_at_a_time: int) -> Iterator[EncodedPart]:
        """Yield the items of a collection in the order of their rows, always the same."""
        yield from live_parts(self.sides[target], items_at_a_time)

    def queries(self, target: Target) -> NDArray[np.float32]:
        """Return query embeddings for measuring the recall, (queries, d_match).

        As in a real search they are of items of the other side, if it has any.
        """
        others = [side for each, side in self.sides.items() if each != target]
        asking = [each.base.embeddings for each in (*others, self.sides[target])]
        return sample_queries(next(filter(len, asking), asking[0]), _RECALL_QUERIES)

    def _feedback(self, target: Target) -> ErrorFeedback | None:
        """Compute from the other collection how to round tokens of this one, as a build does."""
        if self.sides[target].entry.token_dtype == "float16":
            return None
        for other in TARGETS:
            if other != target and other in self.sides:
                return feedback_from(self.sides[other].base.tokens)
        return None


def entries_of(part: EncodedPart) -> list[EngineItem]:
    """Return items in the form for a vector database; the arrays are views."""
    ends = np.cumsum(part.lengths).tolist()
    starts = [0, *ends[:-1]]
    return [
        EngineItem(
            item, part.embeddings[place], part.tokens.take(slice(starts[place], ends[place]))
        )
        for place, item in enumerate(part.items)
    ]


class NearestSoFar:
    """Exact nearest items of some queries among all items seen so far.

    Attributes:
        queries: (queries, dim) float32.
        count: Number of nearest items.
    """

    def __init__(self, queries: NDArray[np.float32], count: int) -> None:
        """Start without items."""
        self.queries = queries
        self.count = count
        self._scores = np.empty((len(queries), 0), dtype=np.float32)

    def take(self, embeddings: NDArray[np.float32]) -> None:
        """Compare the queries with further embeddings, (items, dim)."""
        scores = np.concatenate([self._scores, self.queries @ embeddings.T], axis=1)
        beyond = scores.shape[1] - self.count
        if beyond > 0:
            scores = np.partition(scores, beyond, axis=1)[:, beyond:]
        self._scores = scores

    def calibrate(
        self, client: EngineClient, generation: int, target: Target, recall_wanted: float
    ) -> ChosenSearchWidth:
        """Choose the smallest sufficient search width.

        Args:
            client: Client of the vector database.
            generation: Generation that contains all items seen.
            target: Collection to calibrate.
            recall_wanted: Share of the nearest items to find.
        """
        curve: list[RecallPoint] = []
        for width in client.first_stage(generation, target).widths or (None,):
            before = curve[-1].recall if curve else 0.0
            recall = self._recall(client, generation, target, width)
            curve.append(RecallPoint(search_width=width, oversample=1.0, recall=recall))
            if recall >= recall_wanted or is_saturated(before, recall):
                break
        return ChosenSearchWidth(choose(curve, recall_wanted), curve)

    def _recall(
        self, client: EngineClient, generation: int, target: Target, width: int | None
    ) -> float:
        """Return the share of the nearest items that the vector database finds.

        An item that is as near as the last of them counts as one of them.
        """
        wanted = min(self.count, self._scores.shape[1])
        if wanted == 0 or len(self.queries) == 0:
            return 1.0
        found = 0
        for query, scores in zip(self.queries, self._scores, strict=True):
            hits = client.search(
                EngineQuery(
                    generation=generation,
                    target=target,
                    embedding=query,
                    count=wanted,
                    width=width,
                )
            )
            least = scores.min() - _ROUNDING
            found += sum(hit.match >= least for hit in hits)
        return float(found / (wanted * len(self.queries)))


@contextmanager
def only_pusher(folder: Path) -> Generator[None]:
    """Lock the folder against other pushes, and convert errors of the disk.

    Args:
        folder: Folder of the index; created if missing.

    Raises:
        ConfigError: If the folder holds an index in files or something else.
        IndexWriteError: If another process pushes to it, or the disk cannot be written.
    """
    if (folder / CURRENT).exists():
        raise ConfigError(f"{folder}: expected a folder of its own, got an index of files")
    try:
        with lock_file(folder) as lock:
            try:
                lock_to_write(lock.fileno(), folder, wait=False)
            except BlockingIOError:
                raise IndexWriteError(folder, "another push to this folder is running") from None
            yield
    except OSError as error:
        reason = f"{error.strerror or error}; the live generation in the engine is unchanged"
        raise IndexWriteError(error.filename or folder, reason) from error


def copy_photos(source: Path, folder: Path, items: Iterable[StoredItem]) -> None:
    """Copy the photos that were uploaded: only the index has them.

    Args:
        source: Folder of the index.
        folder: Folder of the new index.
        items: Items of the index; their photos are named by the hash of their content.
    """
    for item in items:
        if item.path is None or Path(item.path).is_absolute() or (folder / item.path).exists():
            continue
        make_folder((folder / item.path).parent)
        with atomic_file(folder / item.path) as partial:
            shutil.copyfile(source / item.path, partial)


def write_folder(source: Path, folder: Path, model: ModelEntry, location: EngineLocation) -> None:
    """Write the model and the location of the index, each atomically.

    Args:
        source: Folder of the index.
        folder: Folder of the new index.
        model: Model of the index.
        location: Location of the index in the vector database.
    """
    place = model_folder(folder, model.id)
    if place == folder / MODEL and place.exists() and not has_model(place, model):
        place = upgrade_model_folder(folder, model.id)  # the live generation keeps its own
    if not has_model(place, model):
        copy_model(model_folder(source, model.id), place, model)
    write_location(folder, location)

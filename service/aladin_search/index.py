"""An index that is open for searches and changes."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import closing
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any, Unpack

from aladin_index.search.request import SearchFields, SearchRequest
from aladin_network.errors import InputError, UnknownItemError
from aladin_network.types import DeviceName, OnDuplicate, Target
from aladin_search.hits import THUMBNAIL_PX, Hits
from aladin_search.inputs import check_literals, described, items_of
from aladin_search.listing import Field, Item, Order, every_item, fields_of, skipped_files
from aladin_search.progress import reported
from aladin_service.door import Local

if TYPE_CHECKING:
    from PIL.Image import Image

    from aladin_index.changes.item_changer import AddCounts
    from aladin_index.changes.writer import ItemWriter
    from aladin_network.photos.files import PhotoFile
    from aladin_network.scoring.metrics import RetrievalMetrics
    from aladin_network.types import Progress


class Index:
    """An open index; searches may run in several threads.

    Searches see the items that are added or deleted later, also by other processes. A new
    generation that replaces the open one is seen by the next `open`.

    Attributes:
        path: Folder of the index.
    """

    def __init__(self, path: Path, device: DeviceName, detector: str | None) -> None:
        """Open the live generation; see `open`."""
        check_literals(device=(device, DeviceName))
        from aladin_service.library.libraries import find_index

        self.path = find_index(path)  # a wrong path is named before torch is imported
        self._door = Local(self.path, device, detector=detector)
        self._searcher = self._door.searcher

    @property
    def counts(self) -> dict[Target, int]:
        """Number of items of each collection, additions and deletions included."""
        index = self._searcher.index
        return {target: index.collection(target).count for target in index.manifest.targets}

    @property
    def alignment_trained(self) -> bool:
        """Whether the alignment of the index's model was trained.

        If not, as of a converted CLIP, hits are ordered by their embeddings, and `explain` finds no
        evidence.
        """
        return self._searcher.index.checkpoint.alignment_trained

    @property
    def skipped(self) -> dict[str, str]:
        """Why each file or item that the build could not use was skipped, by its id."""
        return skipped_files(self.path, self._searcher.index.manifest)

    def search(
        self,
        text: str | None = None,
        *,
        target: Target | None = None,
        **asked: Unpack[SearchFields],
    ) -> Hits:
        """Search with words, a photo or an item of the index, or with several of them at once.

        Args:
            text: Words to search for.
            target: "images" or "texts"; None finds texts for a whole photo, otherwise images, or
                what the index has.
            **asked: What else is searched for, and how. `image` is a photo to search with: the path
                of its file, its bytes, or a decoded picture; `regions` those of a detector; `id` an
                item of the index, which is not among its own hits; `box` the part of the photo to
                search for: x0, y0, x1, y1 in fractions of its size. `all` are further terms that
                hits have, `not_` terms that they do not have, `like` ids of items that they are
                like; beside `all` or `like`, the query may be missing. Options are `k` (number of
                hits, 10), `filter` (metadata that a hit must have), `explain` (hits carry the best
                region of each word) and others; docs/SEARCH.md describes all of them.

        Returns:
            The hits, best first.

        Raises:
            InputError: If not exactly one query is given, the terms are no query, a photo cannot be
                used, the box is none, or an option is out of its bounds.
            NoSuchTargetError: If the index has no collection `target`.
            UnknownItemError: If the index has no item `id`.
        """
        if target is not None:
            check_literals(target=(target, Target))
        request = SearchRequest(text, target, **asked).with_query_as_term()
        request.check_query()
        answer = self._door.search(request)
        files = {hit.id: self._photo_file_if_any(hit.id) for hit in answer.hits}
        return Hits(
            described(request), answer, lambda item: self._small(files[item], item, THUMBNAIL_PX)
        )

    def items(
        self,
        target: Target = "images",
        *,
        sort: str | None = None,
        order: Order = "desc",
        filter: Mapping[str, Any] | None = None,
        stack: bool = False,
    ) -> Iterator[Item]:
        """List items without a query; they are read as they are taken.

        Args:
            target: Collection to list.
            sort: Metadata field to sort by, such as ``taken_at``, or None for the time of addition;
                items without a value come last.
            order: "desc" lists the largest value, or the newest item, first; "asc" the smallest.
            filter: Metadata that an item must have, as in a search.
            stack: Whether photos of one moment and copies are one item, the first in the order.

        Raises:
            NoSuchTargetError: If the index has no such collection.
            InputError: If the index is in a vector database, the filter is wrong, or the field is
                not indexed for filters.
        """
        check_literals(target=(target, Target), order=(order, Order))
        return every_item(self._searcher.index, target, sort, order, filter, stack)

    def fields(self, target: Target = "images") -> list[Field]:
        """Describe the metadata fields that are indexed for filters: values, or their range.

        Raises:
            NoSuchTargetError: If the index has no such collection.
            InputError: If the index is in a vector database.
        """
        check_literals(target=(target, Target))
        return fields_of(self._searcher.index, target)

    def add(
        self,
        images: str | PathLike[str] | None = None,
        texts: str | PathLike[str] | None = None,
        *,
        split: str | None = None,
        on_duplicate: OnDuplicate = "error",
        progress: bool | Progress = False,
    ) -> dict[Target, AddCounts]:
        """Add photos, texts or both, without a rebuild; later searches find them.

        Args:
            images: Photos, as of `build`.
            texts: Texts, as of `build`.
            split: Split of the data set to take, or None for all of it.
            on_duplicate: If an id is already in the index: "error" adds nothing, "replace" replaces
                the old item, "skip" keeps it.
            progress: True shows the progress on stderr.

        Returns:
            For each collection the numbers `added`, `replaced` and `kept`, and the items
            `skipped` with the reason.

        Raises:
            InputError: If neither is given, or the data cannot be used.
            DuplicateItemError: If an id is in the index already and `on_duplicate` is "error".
            NoSuchTargetError: If the index has no such collection.
        """
        check_literals(on_duplicate=(on_duplicate, OnDuplicate))
        from aladin_index.changes.item_changer import add_items, check_new
        from aladin_index.settings import AddSettings

        sources: dict[Target, Path] = {}
        if images is not None:
            sources["images"] = Path(images)
        if texts is not None:
            sources["texts"] = Path(texts)
        if not sources:
            raise InputError("add: expected images, texts or both, got neither")
        settings = AddSettings(on_duplicate=on_duplicate, readers=os.cpu_count() or 1)
        model = self._searcher.index.checkpoint.model
        counts: dict[Target, AddCounts] = {}
        with closing(self._writer()) as writer, reported(progress) as shown:
            if on_duplicate == "error":
                for target, source in sources.items():
                    check_new(writer, target, items_of(target, source, split), settings)
            for target, source in sources.items():
                items = items_of(target, source, split)
                regions = self._door.detector if target == "images" else None
                counts[target] = add_items(writer, model, target, items, settings, shown, regions)
        return counts

    def delete(self, *ids: str, target: Target = "images", ignore_missing: bool = False) -> int:
        """Remove items, all at once; later searches do not find them.

        Args:
            *ids: Ids of the items.
            target: Collection of the items.
            ignore_missing: Ignore ids that are not in the index.

        Returns:
            The number of items removed.

        Raises:
            UnknownItemError: If an id is not in the index and `ignore_missing` is off; nothing is
                removed.
        """
        check_literals(target=(target, Target))
        with closing(self._writer()) as writer:
            return len(writer.delete(target, list(ids), ignore_missing=ignore_missing).deleted)

    def evaluate(
        self,
        data: str | PathLike[str],
        *,
        split: str | None = "test",
        progress: bool | Progress = False,
    ) -> dict[str, RetrievalMetrics]:
        """Measure the network and the searches of this index; see `aladin_search.evaluate`.

        Args:
            data: The photos and captions of the index, with the captions that belong to each photo.
            split: Split of the data, or None for all photos.
            progress: True shows the progress on stderr.

        Returns:
            Metrics by system; "two_stage" are the searches of this index.
        """
        from aladin_index.format.manifest import model_folder
        from aladin_service.measure.evaluate import evaluate_system

        model = model_folder(self.path, self._searcher.index.manifest.model.id)
        with reported(progress) as shown:
            return evaluate_system(model, Path(data), split, self.path, shown).metrics

    def photo(self, item_id: str) -> Image:
        """Open the photo of an item: upright, 8-bit RGB.

        Raises:
            InputError: If the item has no photo, or its file is missing or damaged.
            UnknownItemError: If the index has no such item.
        """
        from aladin_network.photos.decoding import read_image

        file = self.photo_file(item_id)
        if file is None:
            raise InputError(f"item {item_id!r} has no photo")
        return read_image(file)

    def thumbnail(self, item_id: str, size_px: int = THUMBNAIL_PX) -> bytes | None:
        """Return an item's photo as a small JPEG.

        Args:
            item_id: Id of the item.
            size_px: Side of the square that the photo is fitted into, in pixels.

        Returns:
            The file's bytes, or None for a text and for a photo that cannot be read any more.

        Raises:
            UnknownItemError: If the index has no such item.
        """
        return self._small(self.photo_file(item_id), item_id, size_px)

    def photo_file(self, item_id: str) -> PhotoFile | None:
        """Return where the bytes of an item's photo are, or None for a text.

        Raises:
            UnknownItemError: If the index has no such item.
        """
        from aladin_service.photos.photo_bytes import served_photo

        item, _ = self._searcher.find_item(item_id)
        return served_photo(self.path, item, None)

    def _photo_file_if_any(self, item_id: str) -> PhotoFile | None:
        """Return where a hit's photo is; None for a text, and if the item was deleted meanwhile."""
        try:
            return self.photo_file(item_id)
        except UnknownItemError:
            return None

    def close(self) -> None:
        """Release the index's files and threads; hits that were found stay usable."""
        self._door.close()

    def __enter__(self) -> Index:
        """Return the index, which is closed at the end of the block."""
        return self

    def __exit__(self, *_: object) -> None:
        """Close the index."""
        self.close()

    def __repr__(self) -> str:
        """Return the folder and the number of items."""
        held = ", ".join(f"{count:,} {target}" for target, count in self.counts.items())
        return f"<aladin_search.Index {str(self.path)!r}: {held}>"

    def _writer(self) -> ItemWriter:
        from aladin_index.open import open_writer
        from aladin_service.settings import engine_options

        model_id = self._searcher.index.manifest.model.id
        return open_writer(self.path, model_id, engine=engine_options(self.path))

    def _small(self, file: PhotoFile | None, item_id: str, size_px: int) -> bytes | None:
        from aladin_service.photos.photo_bytes import PhotoGoneError, resized_photo

        if file is None:
            return None
        try:
            limits = self._door.limits
            return resized_photo(file, item_id, size_px, limits.image, limits.memory).data
        except PhotoGoneError:
            return None

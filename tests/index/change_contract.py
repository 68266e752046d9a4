"""What an `ItemWriter` has to do, and what an index that is open finds of it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from aladin_index.changes.writer import ItemWriter
from aladin_index.items.uploaded_photos import UploadedPhoto, photo_of
from aladin_index.open import open_backend, open_writer
from aladin_index.search.collection import FirstStageQuery, SearchBackend
from aladin_index.search.searcher import TwoStageSearcher
from aladin_network.checkpoint_files import Checkpoint
from aladin_network.errors import (
    DuplicateItemError,
    IndexMismatchError,
    NoSuchTargetError,
    ShapeError,
    UnknownItemError,
)
from tests.index.contract_index import ContractIndex, Publish
from tests.index.contract_items import (
    ODD_IDS,
    SETTINGS,
    KnownItems,
    as_stored,
    assert_matched,
    made_up_query,
    merged,
    photos,
    renamed,
    slow_match,
    taken,
)
from tests.index.searching import run_search
from tests.index.written import write_index

Changing = tuple[SearchBackend, ItemWriter, KnownItems]


class ChangeContract(ContractIndex):
    """Tests of an index that is written to."""

    @pytest.fixture
    def changing(
        self, publish: Publish, tmp_path: Path, tiny_checkpoint: Path, checkpoint: Checkpoint
    ) -> Iterator[Changing]:
        """An index of 12 photos, open, what writes to it, and what is in it."""
        new = photos(12)
        write_index(tmp_path / "files", tiny_checkpoint, {"images": new}, settings=SETTINGS)
        folder = publish(tmp_path / "files")
        with (
            closing(open_backend(folder, checkpoint=checkpoint)) as opened,
            closing(open_writer(folder, checkpoint.model_id)) as writer,
        ):
            yield opened, writer, as_stored(new)

    def test_what_was_added_is_found_at_once(
        self, changing: Changing, checkpoint: Checkpoint
    ) -> None:
        index, writer, items = changing
        new = photos(5, first=20)
        ids = [item.id for item in new.items]
        assert writer.known("images", ["photo 11", *ids]) == {"photo 11"}
        report = writer.add("images", new, "error")
        assert (report.generation, report.ids["added"]) == (index.generation, ids)
        assert (report.ids["replaced"], report.ids["kept"]) == ([], [])
        assert writer.known("images", ["photo 11", *ids]) == {"photo 11", *ids}
        items = merged([items, as_stored(new)])
        self._check(index, items, seed=0)
        with closing(open_backend(index.path, checkpoint=checkpoint)) as another:
            self._check(another, items, seed=1)

    def test_an_id_that_is_there_already(self, changing: Changing) -> None:
        index, writer, items = changing
        new = renamed(photos(4, seed=1, first=20), ["photo 11", "new", "new", ODD_IDS[1]])
        with pytest.raises(DuplicateItemError):
            writer.add("images", new, "error")
        self._check(index, items, seed=0)  # nothing of the call was applied
        report = writer.add("images", new, "skip")
        assert (report.ids["added"], report.ids["kept"]) == (
            ["new"],
            ["photo 11", "new", ODD_IDS[1]],
        )
        stored = as_stored(taken(new, [1]))
        items = merged([items, stored])
        self._check(index, items, seed=1)
        again = renamed(photos(3, seed=2, first=20), [ODD_IDS[1], "new", "newer"])
        report = writer.add("images", again, "replace")
        assert (report.ids["added"], report.ids["replaced"]) == (["newer"], [ODD_IDS[1], "new"])
        items = merged([items, as_stored(again)])
        self._check(index, items, seed=2)

    def test_what_was_deleted_is_found_no_more(self, changing: Changing) -> None:
        index, writer, items = changing
        gone = [ODD_IDS[0], ODD_IDS[5], "photo 11"]
        with pytest.raises(UnknownItemError, match="photo 99"):
            writer.delete("images", [*gone, "photo 99"])
        self._check(index, items, seed=0)  # nothing of the call was applied
        report = writer.delete("images", [*gone, "photo 99", gone[0]], ignore_missing=True)
        assert (report.deleted, report.missing) == (gone, ["photo 99"])
        items = {item_id: each for item_id, each in items.items() if item_id not in gone}
        self._check(index, items, seed=1)
        searcher = TwoStageSearcher(index)
        for item_id in gone:
            assert index.collection("images").items.by_id(item_id) is None
            with pytest.raises(UnknownItemError):
                searcher.find_item(item_id)
        writer.delete("images", list(items))
        self._check(index, {}, seed=2)
        new = photos(2, seed=3)
        assert writer.add("images", new, "error").ids["added"] == [item.id for item in new.items]
        self._check(index, as_stored(new), seed=3)

    def test_items_of_equal_scores_come_in_the_order_in_which_they_were_added(
        self, changing: Changing
    ) -> None:
        index, writer, items = changing
        first = items["photo 11"].embedding
        for name in ("twin 1", "twin 0"):
            new = renamed(photos(1, first=20), [name])
            writer.add("images", replace(new, embeddings=first[None]), "error")
        twins = ["photo 11", "twin 1", "twin 0"]
        for count in (1, 2, 3, 9):
            collection = index.collection("images")
            found = collection.order(FirstStageQuery(first, count, max(count, 3)))
            ids = [item.id for item in collection.items.by_rows(found.rows.tolist())]
            assert ids[:3] == twins[:count]

    def test_what_cannot_be_added_changes_nothing(self, changing: Changing) -> None:
        index, writer, items = changing
        new = photos(2, first=20)
        for wrong in (
            replace(new, embeddings=new.embeddings[:, :-1]),
            replace(new, tokens=new.tokens[:-1]),
        ):
            with pytest.raises(ShapeError):
                writer.add("images", wrong, "replace")
        for call in (
            lambda: writer.add("texts", new, "replace"),
            lambda: writer.delete("texts", ["photo 11"]),
            lambda: writer.known("texts", ["photo 11"]),
            lambda: index.collection("texts"),
        ):
            with pytest.raises(NoSuchTargetError):
                call()
        with (
            closing(open_writer(index.path, "0" * 64)) as another,
            pytest.raises(IndexMismatchError),
        ):
            another.add("images", new, "replace")
        self._check(index, items, seed=0)

    def test_uploaded_photos_are_kept(self, changing: Changing) -> None:
        index, writer, _ = changing
        upload, new = UploadedPhoto(b"not looked into"), photos(1, first=20)
        kept = replace(new, items=[new.items[0]._replace(path=upload.path)], photos=[upload])
        writer.add("images", kept, "error")
        item = index.collection("images").items.by_id("photo 20")
        photo = None if item is None else photo_of(index.path, item)
        assert photo is not None and photo.read(1000) == b"not looked into"

    def test_an_index_without_tokens_is_answered_by_the_first_stage(
        self, publish: Publish, tmp_path: Path, tiny_checkpoint: Path, checkpoint: Checkpoint
    ) -> None:
        new = photos(5)
        bare = replace(new, tokens=new.tokens[:0], lengths=np.zeros(5, dtype=np.int64))
        write_index(tmp_path / "files", tiny_checkpoint, {"images": bare}, settings=SETTINGS)
        with closing(open_backend(publish(tmp_path / "files"), checkpoint=checkpoint)) as index:
            query, searcher = made_up_query(np.random.default_rng(10)), TwoStageSearcher(index)
            expected = [each.id for each in slow_match(as_stored(bare).values(), query)]
            for rerank in (True, False):
                result = run_search(searcher, query, "text", "images", k=9, rerank=rerank)
                assert (result.reranked, result.fusion) == (False, None)
                assert result.degraded == ["rerank"] * rerank
                assert [hit.id for hit in result.hits] == expected
                assert all(hit.stages.align is hit.per_word is None for hit in result.hits)

    def _check(self, index: SearchBackend, items: KnownItems, seed: int) -> None:
        """Compare an index of photos with what should be in it: counts, searches, look-ups."""
        searcher = TwoStageSearcher(index)
        assert index.collection("images").count == len(items)
        query = made_up_query(np.random.default_rng([11, seed]))
        for filter, passing in (
            ({}, items),
            ({"even": True}, {k: v for k, v in items.items() if v.item.metadata["even"]}),
        ):
            result = run_search(
                searcher, query, "text", "images", k=99, rerank=False, filter=filter
            )
            assert_matched(result, slow_match(passing.values(), query))
        for item_id, each in list(items.items())[-2:]:
            encoding, _ = searcher.stored_query(item_id)[:2]
            np.testing.assert_array_equal(encoding.embedding[0], each.embedding)
            np.testing.assert_array_equal(encoding.tokens[0], each.tokens)
            assert searcher.find_item(item_id)[0].metadata == each.item.metadata

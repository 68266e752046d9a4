"""What every `SearchBackend` and `ItemWriter` has to do, whichever engine keeps the index.

A test class inherits one of these and says how an index of files gets where the backend has it:

    class TestFiles(BackendContract):
        @pytest.fixture(scope="class")
        @classmethod
        def publish(cls) -> Publish:
            return lambda files: files

What is expected is worked out item by item in `tests.index.contract_items`, or, of
`RemoteContract`, what the index of files answers.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest
import torch

from aladin.calibration.calibration import Calibration
from aladin.checkpoint import Checkpoint, load_checkpoint
from aladin.encoding import Encoding
from aladin.errors import (
    DuplicateItemError,
    IndexMismatchError,
    InputError,
    NoSuchTargetError,
    ShapeError,
    UnknownItemError,
)
from aladin.inference import encode_texts
from index.backend import ItemWriter, SearchBackend, SecondStageQuery
from index.changes.uploaded_photos import UploadedPhoto, photo_of
from index.changes.writer import NewItems
from index.items.filters import parse_filter
from index.modality import DIRECTION_OF, Modality
from index.open import open_backend, open_writer
from index.results import Hit, SearchResult
from index.searcher import TwoStageSearcher
from index.settings import Target
from index.tokens.codec import TokenCodec
from tests.index.contract_items import (
    EMBEDDING_DIM,
    FILTERS,
    ODD_IDS,
    TOKEN_DIM,
    Expected,
    KnownItems,
    captions,
    known,
    made_up_query,
    merged,
    metadata_of,
    photos,
    slow_match,
    slow_search,
    write_collection,
)

# From the folder of an index of files to that of the index that a backend opens.
Publish = Callable[[Path], Path]

PHOTOS, TEXTS = 40, 24
DIRECTIONS: list[tuple[Modality, Target]] = [("text", "images"), ("image", "texts")]


class BackendContract:
    """Tests of an open index, and of one that is written to.

    Attributes:
        tolerance: of a score; floats are summed up in one order here and in others there.
        orders_text: whether filters may ask for an order of texts; else they are refused.
    """

    tolerance: ClassVar[float] = 2e-5
    orders_text: ClassVar[bool] = True

    @pytest.fixture(scope="class")
    @classmethod
    def publish(cls) -> Publish:
        """Return a function that brings an index of files to where the backend has it."""
        raise NotImplementedError

    @pytest.fixture(scope="class")
    @classmethod
    def checkpoint(cls, tiny_checkpoint: Path) -> Checkpoint:
        return load_checkpoint(tiny_checkpoint)

    @pytest.fixture(scope="class")
    @classmethod
    def files(
        cls,
        tmp_path_factory: pytest.TempPathFactory,
        tiny_checkpoint: Path,
        checkpoint: Checkpoint,
        make_calibration: Callable[..., Calibration],
    ) -> Path:
        """An index of files of 40 photos and 24 texts."""
        root = tmp_path_factory.mktemp("contract") / "index"
        sides: Mapping[Target, NewItems] = {
            "images": photos(PHOTOS),
            "texts": captions(checkpoint, TEXTS),
        }
        calibration = make_calibration(checkpoint.model_id)
        model_id = checkpoint.model_id
        write_collection(root, tiny_checkpoint, model_id, sides, "float16", calibration)
        return root

    @pytest.fixture(scope="class")
    @classmethod
    def index(
        cls, publish: Publish, files: Path, checkpoint: Checkpoint
    ) -> Iterator[SearchBackend]:
        """The index of `files`, open; not to be written to."""
        with closing(open_backend(publish(files), checkpoint=checkpoint)) as opened:
            yield opened

    @pytest.fixture(scope="class")
    @classmethod
    def searcher(cls, index: SearchBackend) -> TwoStageSearcher:
        return TwoStageSearcher(index)

    @pytest.fixture(scope="class")
    @classmethod
    def items(cls, checkpoint: Checkpoint) -> Mapping[Target, KnownItems]:
        """What is in it."""
        images, texts = photos(PHOTOS), captions(checkpoint, TEXTS)
        return {"images": _as_stored(images), "texts": _as_stored(texts)}

    @pytest.fixture
    def changing(
        self, publish: Publish, tmp_path: Path, tiny_checkpoint: Path, checkpoint: Checkpoint
    ) -> Iterator[tuple[SearchBackend, ItemWriter, KnownItems]]:
        """An index of 12 photos, open, what writes to it, and what is in it."""
        new = photos(12)
        model_id = checkpoint.model_id
        write_collection(tmp_path / "files", tiny_checkpoint, model_id, {"images": new})
        folder = publish(tmp_path / "files")
        with (
            closing(open_backend(folder, checkpoint=checkpoint)) as opened,
            closing(open_writer(folder, checkpoint.model_id)) as writer,
        ):
            yield opened, writer, _as_stored(new)

    # An index that does not change.

    def test_it_says_what_it_is(self, index: SearchBackend, checkpoint: Checkpoint) -> None:
        index.check_health()
        assert index.checkpoint is checkpoint
        assert index.manifest.model.id == checkpoint.model_id
        assert index.manifest.targets == ["images", "texts"]
        assert index.generation == index.manifest.generation >= 1
        for target, count in (("images", PHOTOS), ("texts", TEXTS)):
            side = index.side(target)
            assert (side.target, side.count, side.entry.count) == (target, count, count)
            assert (side.entry.embedding_dim, side.entry.token_dim) == (EMBEDDING_DIM, TOKEN_DIM)
            assert side.has_tokens

    @pytest.mark.parametrize(("modality", "target"), DIRECTIONS)
    def test_all_items_come_in_their_order_with_both_scores(
        self,
        searcher: TwoStageSearcher,
        items: Mapping[Target, KnownItems],
        modality: Modality,
        target: Target,
    ) -> None:
        random = np.random.default_rng(3)
        for block, weight in ((7, None), (100, 0.5), (16, 0.25), (100, 1.0)):
            query = made_up_query(random, 4)
            expected = self._ranked(searcher, items[target], query, modality, block, weight)
            result = searcher.search(
                query, modality, target, top_k=99, num_candidates=block, fusion=weight
            )
            self._assert_hits(result, expected)
            assert (result.reranked, result.degraded) == (True, [])
            assert result.candidates == min(block, len(expected))
            for hit in result.hits:
                item = items[target][hit.id].item
                assert (hit.uri, hit.text, hit.metadata) == (item.uri, item.text, item.metadata)

    @pytest.mark.parametrize("target", ["images", "texts"])
    def test_the_first_stage_alone(
        self, searcher: TwoStageSearcher, items: Mapping[Target, KnownItems], target: Target
    ) -> None:
        query = made_up_query(np.random.default_rng(4))
        expected = slow_match(items[target].values(), query)
        for modality in ("text", "image"):
            result = searcher.search(query, modality, target, top_k=15, rerank=False)
            assert not result.reranked
            assert [hit.score for hit in result.hits] == pytest.approx(
                [each.score for each in expected[:15]], abs=self.tolerance
            )
            assert [hit.id for hit in result.hits] == [each.id for each in expected[:15]]
            crossing = (modality == "text") == (target == "images")
            assert all((hit.stages.align is not None) == crossing for hit in result.hits)

    @pytest.mark.parametrize("rerank", [True, False])
    def test_pages_of_any_size_are_one_order(
        self,
        searcher: TwoStageSearcher,
        items: Mapping[Target, KnownItems],
        rerank: bool,
    ) -> None:
        query = made_up_query(np.random.default_rng(5))
        expected = slow_match(items["images"].values(), query)
        if rerank:
            expected = self._ranked(searcher, items["images"], query, "text", 9, None)
        for size in (1, 9, 13):
            found: list[str] = []
            for offset in range(0, PHOTOS + 2 * size, size):
                hits = searcher.search(
                    query, "text", "images", top_k=size, offset=offset, num_candidates=9,
                    rerank=rerank,
                ).hits  # fmt: skip
                assert [hit.rank for hit in hits] == list(range(offset + 1, offset + 1 + len(hits)))
                found += [hit.id for hit in hits]
            assert found == [each.id for each in expected]

    @pytest.mark.parametrize("case", FILTERS, ids=lambda case: str(case.spec))
    def test_filters_let_through_what_they_say(
        self, searcher: TwoStageSearcher, items: Mapping[Target, KnownItems], case: Any
    ) -> None:
        query = made_up_query(np.random.default_rng(6))
        options: dict[str, Any] = {"num_candidates": 5, "filter": case.spec}
        if case.orders_text and not self.orders_text:
            with pytest.raises(InputError, match="text"):
                searcher.search(query, "text", "images", top_k=99, **options)
            return
        for modality, target in DIRECTIONS:
            passing = {
                item_id: each
                for item_id, each in items[target].items()
                if case.passes(each.item.metadata)
            }
            expected = self._ranked(searcher, passing, query, modality, 5, None)
            result = searcher.search(query, modality, target, top_k=99, **options)
            self._assert_hits(result, expected)
            assert result.candidates == min(5, len(passing))
            page = searcher.search(query, modality, target, top_k=3, offset=4, **options)
            assert [hit.id for hit in page.hits] == [each.id for each in expected[4:7]]

    def test_items_are_found_by_their_ids_whatever_these_are(
        self, searcher: TwoStageSearcher, items: Mapping[Target, KnownItems]
    ) -> None:
        assert set(ODD_IDS) < items["images"].keys()
        for target, modality in (("images", "image"), ("texts", "text")):
            side = searcher.index.side(target)
            wanted = [*items[target], "nobody", "\ud800", next(iter(items[target]))]
            together = dict(zip(wanted, side.items.by_ids(wanted), strict=True))
            assert together["nobody"] is together["\ud800"] is None
            for item_id, each in items[target].items():
                stored = side.items.by_id(item_id)
                assert stored == together[item_id]
                assert stored is not None
                assert stored == each.item._replace(row=stored.row)
                assert side.items.by_rows([stored.row]) == [stored]
                encoding, its_modality = searcher.encode_item(item_id)
                assert its_modality == modality
                np.testing.assert_array_equal(encoding.embedding[0].numpy(), each.embedding)
                np.testing.assert_array_equal(encoding.tokens[0].numpy(), each.tokens)
        for unknown in ("photo", "A space", "e", "", "\ud800", "x" * 301):
            assert searcher.index.side("images").items.by_id(unknown) is None
            with pytest.raises(UnknownItemError):
                searcher.find_item(unknown)

    def test_an_item_that_a_filter_leaves_out_is_found_by_its_id(
        self, index: SearchBackend
    ) -> None:
        side = index.side("images", parse_filter({"number": {"gt": 1000}}))
        assert side.count == PHOTOS
        found = side.items.by_id("photo 39")
        assert found is not None
        assert found.metadata == metadata_of(39)
        assert len(side.tokens(found.row)) > 0

    def test_a_longer_order_begins_with_a_shorter_one(
        self, index: SearchBackend, items: Mapping[Target, KnownItems]
    ) -> None:
        query = made_up_query(np.random.default_rng(7))
        embedding = query.embedding[0].numpy()
        expected = slow_match(items["images"].values(), query)
        for second_stage in (None, SecondStageQuery(query.item_tokens(0), "text")):
            side = index.side("images")
            for count in (0, 1, 6, 7, 20, PHOTOS, 99):
                rows, match, candidates = side.order(embedding, count, 6, second_stage)
                assert candidates == 6
                assert (rows.dtype, match.dtype) == (np.int64, np.float32)
                ids = [item.id for item in side.items.by_rows(rows.tolist())]
                assert ids == [each.id for each in expected[:count]]
                assert match.tolist() == pytest.approx(
                    [each.match for each in expected[:count]], abs=self.tolerance
                )
            assert side.order(embedding, 3, 99, second_stage).candidates == PHOTOS

    @pytest.mark.parametrize(("modality", "target"), DIRECTIONS)
    def test_the_tokens_of_what_was_found(
        self,
        index: SearchBackend,
        items: Mapping[Target, KnownItems],
        modality: Modality,
        target: Target,
    ) -> None:
        """All that is asked of rows, in any order, one more than once."""
        query = made_up_query(np.random.default_rng(8))
        tokens = query.item_tokens(0)
        side = index.side(target)
        found = side.order(query.embedding[0].numpy(), 9, 9).rows
        rows = found[[4, 0, 8, 2, 4]]
        stored = [items[target][item.id] for item in side.items.by_rows(rows.tolist())]
        assert side.lengths(rows).tolist() == [len(each.tokens) for each in stored]
        expected = [tokens.numpy() @ each.tokens.T for each in stored]
        for actual, wanted in zip(side.similarities(tokens, modality, rows), expected, strict=True):
            np.testing.assert_allclose(actual, wanted, atol=self.tolerance)
        best = [(each if modality == "text" else each.T).max(axis=1).sum() for each in expected]
        np.testing.assert_allclose(
            side.align(tokens, modality, rows), best, atol=10 * self.tolerance
        )
        for row, each in zip(rows.tolist(), stored, strict=True):
            np.testing.assert_array_equal(side.tokens(row).numpy(), each.tokens)
            np.testing.assert_array_equal(side.embedding(row).numpy(), each.embedding)
        together = side.embeddings(rows.tolist()).numpy()
        np.testing.assert_array_equal(together, [each.embedding for each in stored])
        nothing = rows[:0]
        assert side.align(tokens, modality, nothing).shape == (0,)
        assert side.similarities(tokens, modality, nothing) == []
        assert side.lengths(nothing).shape == (0,)

    def test_evidence_adds_up_to_the_score(
        self, searcher: TwoStageSearcher, items: Mapping[Target, KnownItems]
    ) -> None:
        text = "a red dog sleeps by the boat"
        model = searcher.index.checkpoint.model
        asked: list[tuple[Encoding, Modality, Target, str | None]] = [
            (encode_texts(model, [text]), "text", "images", text),
            (searcher.encode_item("photo 20")[0], "image", "texts", None),
        ]
        for query, modality, target, query_text in asked:
            result = searcher.search(
                query, modality, target, top_k=9, explain=True, query_text=query_text,
                query_size_px=(40, 30),
            )  # fmt: skip
            assert len(result.hits) == 9
            for hit in result.hits:
                similarity = query.item_tokens(0).numpy() @ items[target][hit.id].tokens.T
                of_words = similarity if modality == "text" else similarity.T
                assert hit.evidence is not None
                best = of_words.max(axis=1)
                assert len(hit.evidence) == len(best)
                for word, (each, cosine) in enumerate(zip(hit.evidence, best, strict=True)):
                    assert each.score == pytest.approx(cosine, abs=self.tolerance)
                    assert of_words[word, each.region] == pytest.approx(cosine, abs=self.tolerance)
                assert hit.stages.align is not None
                assert sum(each.score for each in hit.evidence) == pytest.approx(
                    hit.stages.align.score, abs=10 * self.tolerance
                )

    def test_probabilities_are_those_of_the_calibration(self, searcher: TwoStageSearcher) -> None:
        """They are the same whatever the order, the page and the fusion are."""
        query = made_up_query(np.random.default_rng(9))
        result = searcher.search(query, "text", "images", top_k=4, fusion=0.5)
        assert result.match_probability is not None
        assert all(0 < (hit.probability or 0) < 1 for hit in result.hits)
        again = searcher.search(query, "text", "images", top_k=PHOTOS, rerank=False)
        assert again.match_probability == pytest.approx(result.match_probability, abs=1e-4)
        of = {hit.id: hit.probability for hit in again.hits}
        for hit in result.hits:
            assert hit.probability == pytest.approx(of[hit.id], abs=1e-4)
        least = sorted(filter(None, of.values()))[PHOTOS // 2]
        likely = searcher.search(
            query, "text", "images", top_k=PHOTOS, rerank=False, min_probability=least
        )
        assert [hit.id for hit in likely.hits] == [
            hit.id for hit in again.hits if (hit.probability or 0) >= least
        ]

    # An index that changes.

    def test_what_was_added_is_found_at_once(
        self, changing: tuple[SearchBackend, ItemWriter, KnownItems], checkpoint: Checkpoint
    ) -> None:
        index, writer, items = changing
        new = photos(5, first=20)
        ids = [item.id for item in new.items]
        assert writer.known("images", ["photo 11", *ids]) == {"photo 11"}
        report = writer.add("images", new, "error")
        assert (report.generation, report.added) == (index.generation, ids)
        assert (report.replaced, report.skipped) == ([], [])
        assert writer.known("images", ["photo 11", *ids]) == {"photo 11", *ids}
        items = merged([items, _as_stored(new)])
        self._check(index, items, seed=0)
        with closing(open_backend(index.path, checkpoint=checkpoint)) as another:
            self._check(another, items, seed=1)

    def test_an_id_that_is_there_already(
        self, changing: tuple[SearchBackend, ItemWriter, KnownItems]
    ) -> None:
        index, writer, items = changing
        new = _renamed(photos(4, seed=1, first=20), ["photo 11", "new", "new", ODD_IDS[1]])
        with pytest.raises(DuplicateItemError):
            writer.add("images", new, "error")
        self._check(index, items, seed=0)  # nothing of the call was applied
        report = writer.add("images", new, "skip")
        assert (report.added, report.skipped) == (["new"], ["photo 11", "new", ODD_IDS[1]])
        stored = _as_stored(_taken(new, [1]))
        items = merged([items, stored])
        self._check(index, items, seed=1)
        again = _renamed(photos(3, seed=2, first=20), [ODD_IDS[1], "new", "newer"])
        report = writer.add("images", again, "replace")
        assert (report.added, report.replaced) == (["newer"], [ODD_IDS[1], "new"])
        items = merged([items, _as_stored(again)])
        self._check(index, items, seed=2)

    def test_what_was_deleted_is_found_no_more(
        self, changing: tuple[SearchBackend, ItemWriter, KnownItems]
    ) -> None:
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
            assert index.side("images").items.by_id(item_id) is None
            with pytest.raises(UnknownItemError):
                searcher.find_item(item_id)
        writer.delete("images", list(items))
        self._check(index, {}, seed=2)
        new = photos(2, seed=3)
        assert writer.add("images", new, "error").added == [item.id for item in new.items]
        self._check(index, _as_stored(new), seed=3)

    def test_items_of_equal_scores_come_in_the_order_in_which_they_were_added(
        self, changing: tuple[SearchBackend, ItemWriter, KnownItems]
    ) -> None:
        index, writer, items = changing
        first = items["photo 11"].embedding
        for name in ("twin 1", "twin 0"):
            new = _renamed(photos(1, first=20), [name])
            writer.add("images", replace(new, embeddings=first[None]), "error")
        twins = ["photo 11", "twin 1", "twin 0"]
        for count in (1, 2, 3, 9):
            side = index.side("images")
            found = side.order(first, count, max(count, 3))
            ids = [item.id for item in side.items.by_rows(found.rows.tolist())]
            assert ids[:3] == twins[:count]

    def test_what_cannot_be_added_changes_nothing(
        self, changing: tuple[SearchBackend, ItemWriter, KnownItems]
    ) -> None:
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
            lambda: index.side("texts"),
        ):
            with pytest.raises(NoSuchTargetError):
                call()
        with (
            closing(open_writer(index.path, "0" * 64)) as another,
            pytest.raises(IndexMismatchError),
        ):
            another.add("images", new, "replace")
        self._check(index, items, seed=0)

    def test_uploaded_photos_are_kept(
        self, changing: tuple[SearchBackend, ItemWriter, KnownItems]
    ) -> None:
        index, writer, _ = changing
        upload = UploadedPhoto(b"not looked into")
        new = photos(1, first=20)
        kept = replace(new, items=[new.items[0]._replace(path=upload.path)], photos=[upload])
        writer.add("images", kept, "error")
        item = index.side("images").items.by_id("photo 20")
        assert item is not None
        photo = photo_of(index.path, item)
        assert photo is not None
        assert photo.read(1000) == b"not looked into"

    def test_an_index_without_tokens_is_answered_by_the_first_stage(
        self, publish: Publish, tmp_path: Path, tiny_checkpoint: Path, checkpoint: Checkpoint
    ) -> None:
        new = photos(5)
        bare = replace(new, tokens=new.tokens[:0], lengths=np.zeros(5, dtype=np.int64))
        model_id = checkpoint.model_id
        write_collection(tmp_path / "files", tiny_checkpoint, model_id, {"images": bare})
        with closing(open_backend(publish(tmp_path / "files"), checkpoint=checkpoint)) as index:
            query = made_up_query(np.random.default_rng(10))
            result = TwoStageSearcher(index).search(query, "text", "images", top_k=9)
            assert (result.reranked, result.degraded) == (False, ["rerank"])
            expected = slow_match(_as_stored(bare).values(), query)
            assert [hit.id for hit in result.hits] == [each.id for each in expected]

    # What the tests are made of.

    def _check(self, index: SearchBackend, items: KnownItems, seed: int) -> None:
        """Compare an index of photos with what should be in it: counts, searches, look-ups."""
        searcher = TwoStageSearcher(index)
        assert index.side("images").count == len(items)
        query = made_up_query(np.random.default_rng([11, seed]))
        for filter, passing in (
            ({}, items),
            ({"even": True}, {k: v for k, v in items.items() if v.item.metadata["even"]}),
        ):
            expected = self._ranked(searcher, passing, query, "text", 5, None)
            result = searcher.search(
                query, "text", "images", top_k=99, num_candidates=5, filter=filter
            )
            self._assert_hits(result, expected)
        for item_id, each in list(items.items())[-2:]:
            encoding, _ = searcher.encode_item(item_id)
            np.testing.assert_array_equal(encoding.embedding[0].numpy(), each.embedding)
            np.testing.assert_array_equal(encoding.tokens[0].numpy(), each.tokens)
            assert searcher.find_item(item_id)[0].metadata == each.item.metadata

    def _ranked(
        self,
        searcher: TwoStageSearcher,
        items: KnownItems,
        query: Encoding,
        modality: Modality,
        block: int,
        weight: float | None,
    ) -> list[Expected]:
        fusion = searcher.index.checkpoint.fusion.of(DIRECTION_OF[modality])
        weight = fusion.weight if weight is None else weight
        return slow_search(items.values(), query, modality, block, fusion=fusion, weight=weight)

    def _assert_hits(self, result: SearchResult, expected: Sequence[Expected]) -> None:
        """Compare all hits; an alignment score has the error of each word."""
        assert [hit.id for hit in result.hits] == [each.id for each in expected]
        for hit, each in zip(result.hits, expected, strict=True):
            assert hit.score == pytest.approx(each.score, abs=10 * self.tolerance)
            assert hit.stages.match.score == pytest.approx(each.match, abs=self.tolerance)
            assert hit.stages.align is not None
            assert hit.stages.align.score == pytest.approx(each.align, abs=10 * self.tolerance)


class RemoteContract(BackendContract):
    """What an index that was pushed to an engine has to do beside that."""

    # By default the form that is rounded most.
    @pytest.mark.parametrize("dtype", [pytest.param("int8", marks=pytest.mark.cluster), "2bit"])
    def test_answers_are_those_of_the_index_of_files(
        self,
        publish: Publish,
        tmp_path: Path,
        tiny_checkpoint: Path,
        checkpoint: Checkpoint,
        make_calibration: Callable[..., Calibration],
        dtype: Any,
    ) -> None:
        files = tmp_path / "files"
        texts = captions(checkpoint, TEXTS)
        write_collection(
            files,
            tiny_checkpoint,
            checkpoint.model_id,
            {"images": photos(20), "texts": texts},
            dtype,
            make_calibration(checkpoint.model_id),
        )
        folder = publish(files)
        with (
            closing(open_backend(files, checkpoint=checkpoint)) as ours,
            closing(open_backend(folder, checkpoint=checkpoint)) as theirs,
        ):
            self._compare(ours, theirs)
            for root in (files, folder):
                with closing(open_writer(root, checkpoint.model_id)) as writer:
                    new = _renamed(photos(6, first=20), ["a", "b", "c", "d", "photo 11", "f"])
                    writer.add("images", new, "replace")
                    writer.delete("images", ["b", "photo 15"])
                    again = _renamed(_taken(texts, [4, 5]), ["text 3", "another"])
                    again = replace(again, embeddings=photos(2, seed=9).embeddings)
                    writer.add("texts", again, "replace")
            self._compare(ours, theirs)
            for item_id in ("a", "photo 11", "photo 12", "text 3", "another"):
                one, other = (
                    TwoStageSearcher(index).encode_item(item_id)[0] for index in (ours, theirs)
                )
                # Packed by the same codec, with what was learnt from the other side.
                assert torch.equal(one.tokens, other.tokens)
                assert torch.equal(one.embedding, other.embedding)

    def _compare(self, ours: SearchBackend, theirs: SearchBackend) -> None:
        """Ask both indexes the same: texts and photos, with filters and without, several pages."""
        queries: list[tuple[Encoding, Modality, Target, str | None]] = []
        searcher = TwoStageSearcher(ours)
        for number in range(0, TEXTS, 6):
            text = searcher.find_item(f"text {number}")[0].text
            queries.append((searcher.encode_item(f"text {number}")[0], "text", "images", text))
        for item_id in (ODD_IDS[2], "photo 16"):
            queries.append((searcher.encode_item(item_id)[0], "image", "texts", None))
        for query, modality, target, text in queries:
            for options in (
                {},
                {"num_candidates": 4, "offset": 2, "fusion": 0.5},
                {"rerank": False, "filter": {"even": True}},
                {"filter": {"tags": ["red"]}, "min_probability": 0.3},
            ):
                one, other = (
                    TwoStageSearcher(index).search(
                        query,
                        modality,
                        target,
                        top_k=6,
                        explain=True,
                        query_text=text,
                        query_size_px=(30, 20),
                        **options,
                    )
                    for index in (ours, theirs)
                )
                self._assert_same(one, other)

    def _assert_same(self, one: SearchResult, other: SearchResult) -> None:
        for name in ("reranked", "fusion", "candidates", "degraded", "no_match"):
            assert getattr(one, name) == getattr(other, name)
        # Probabilities are steep in the scores.
        assert other.match_probability == pytest.approx(one.match_probability, abs=1e-3)
        assert len(one.hits) == len(other.hits)
        for ours, theirs in zip(one.hits, other.hits, strict=True):
            for name in ("id", "rank", "uri", "text", "metadata"):
                assert getattr(ours, name) == getattr(theirs, name)
            assert theirs.probability == pytest.approx(ours.probability, abs=1e-3)
            assert _scores(theirs) == pytest.approx(_scores(ours), abs=10 * self.tolerance)
            assert theirs.stages.match.rank == ours.stages.match.rank
            assert [each._replace(score=0, share=0) for each in theirs.evidence or ()] == [
                each._replace(score=0, share=0) for each in ours.evidence or ()
            ]


def _scores(hit: Hit) -> list[float]:
    assert hit.stages.align is not None
    assert hit.per_word is not None
    assert hit.evidence is not None
    of_words = [each.score for each in hit.evidence]
    return [hit.score, hit.per_word, hit.stages.match.score, hit.stages.align.score, *of_words]


def _as_stored(new: NewItems) -> KnownItems:
    return known(new, TokenCodec("float16", TOKEN_DIM))


def _taken(new: NewItems, places: Sequence[int]) -> NewItems:
    """Return some of the items."""
    ends = np.cumsum(new.lengths)
    parts = [new.tokens[ends[place] - new.lengths[place] : ends[place]] for place in places]
    return replace(
        new,
        items=[new.items[place] for place in places],
        embeddings=new.embeddings[list(places)],
        tokens=np.concatenate(parts),
        lengths=new.lengths[list(places)],
    )


def _renamed(new: NewItems, ids: Sequence[str]) -> NewItems:
    items = [item._replace(id=name) for item, name in zip(new.items, ids, strict=True)]
    return replace(new, items=items)

"""What a `SearchBackend` has to answer, of an index that does not change."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from aladin_index.encode.encoded import ItemBatch
from aladin_index.items.filters import parse_filter
from aladin_index.open import open_backend
from aladin_index.search.collection import FirstStageQuery, SearchBackend, SecondStageQuery
from aladin_index.search.options import SearchOptions
from aladin_index.search.query import Query
from aladin_index.search.results import Role
from aladin_index.search.searcher import TwoStageSearcher
from aladin_network.calibration.calibration import Calibration
from aladin_network.checkpoint_files import Checkpoint
from aladin_network.errors import UnknownItemError
from aladin_network.inference import encode_texts
from aladin_network.scoring.encoding import Encoding
from aladin_network.types import MODALITY_OF, TARGETS, Modality, Target
from tests.index.contract_index import ContractIndex, Publish
from tests.index.contract_items import (
    EMBEDDING_DIM,
    FILTERS,
    ODD_IDS,
    SETTINGS,
    TOKEN_DIM,
    TOLERANCE,
    KnownItems,
    as_stored,
    assert_matched,
    captions,
    made_up_query,
    metadata_of,
    photos,
    slow_match,
)
from tests.index.search.reference import POOL, Reference
from tests.index.search.test_answers import assert_as_expected
from tests.index.searching import run_search
from tests.index.written import write_index

PHOTOS, TEXTS = 40, 24
ASKED = ["text 5", "text 7", "text 12", "photo 30", "photo 16", ODD_IDS[0]]
VALUES: dict[str, list[Any]] = {
    "k": [10, 1, 60],
    "offset": [0, 0, 7, 33, 200],
    "candidates": [None, 1, 6, 20, 300],
    "rerank": [True, True, False],
    "fusion": [None, None, 0.0, 0.3, 1.0],
    "filter": [{}, {}, {"number": {"lt": 20}}, {"even": True}, {"number": -1}, {"wheels": 4}],
    "min_probability": [None, None, None, 0.3, 1.0],
    "sort": [None, None, "-number", "rating", "wheels"],
}
DIRECTIONS: list[tuple[Modality, Target]] = [("text", "images"), ("image", "texts")]


class SearchContract(ContractIndex):
    """Tests of an open index of photos and texts."""

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
        collections: Mapping[Target, ItemBatch] = {
            "images": photos(PHOTOS),
            "texts": captions(checkpoint, TEXTS),
        }
        calibration = make_calibration(checkpoint.model_id)
        write_index(root, tiny_checkpoint, collections, settings=SETTINGS, calibration=calibration)
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
    def reference(cls, files: Path, checkpoint: Checkpoint) -> Iterator[Reference]:
        """What `files` should answer, whose calibration looks at few hits."""
        with (
            pytest.MonkeyPatch.context() as patch,
            closing(open_backend(files, checkpoint=checkpoint)) as opened,
        ):
            patch.setattr("aladin_index.search.plan.POOL", POOL)
            yield Reference(TwoStageSearcher(opened), None)

    @pytest.fixture(scope="class")
    @classmethod
    def items(cls, checkpoint: Checkpoint) -> Mapping[Target, KnownItems]:
        """What is in it."""
        images, texts = photos(PHOTOS), captions(checkpoint, TEXTS)
        return {"images": as_stored(images), "texts": as_stored(texts)}

    def test_it_says_what_it_is(self, index: SearchBackend, checkpoint: Checkpoint) -> None:
        index.check_health()
        assert index.checkpoint is checkpoint
        assert index.manifest.model.id == checkpoint.model_id
        assert index.manifest.targets == ["images", "texts"]
        assert index.generation == index.manifest.generation >= 1
        for target, count in (("images", PHOTOS), ("texts", TEXTS)):
            found = index.collection(target)
            assert (found.target, found.count, found.entry.count) == (target, count, count)
            dims = (found.entry.embedding_dim, found.entry.token_dim)
            assert (dims, found.has_tokens) == ((EMBEDDING_DIM, TOKEN_DIM), True)

    @pytest.mark.parametrize("seed", range(3))
    def test_random_searches_are_answered_as_by_the_reference(
        self, searcher: TwoStageSearcher, reference: Reference, seed: int
    ) -> None:
        """Texts, photos and several terms, with any options that all backends take."""
        chance = random.Random(seed)
        for _ in range(40):
            asked = [searcher.stored_query(name) for name in chance.sample(ASKED, 3)]
            query: Query = (asked[0]._replace(own_id=chance.choice([asked[0].own_id, None])),)
            options = {name: chance.choice(values) for name, values in VALUES.items()}
            if chance.random() < 0.4:
                roles: list[Role] = ["all", *chance.choices(["all", "not", "like"], k=2)]
                terms = zip(asked, roles, strict=True)
                query = tuple(term._replace(role=role) for term, role in terms)
                options["min_probability"] = None
            target = chance.choice(TARGETS)
            if query[0].modality == MODALITY_OF[target]:
                options["min_probability"] = None
            wanted = SearchOptions(**options)
            answer = searcher.search(query, target, wanted)
            assert_as_expected(answer, reference.answer(query, target, wanted), wanted)
            stored = {each.item.id: each.item for each in reference.items[target]}
            for hit in answer.hits:
                item = stored[hit.id]
                assert (hit.uri, hit.text, hit.metadata) == (item.uri, item.text, item.metadata)

    @pytest.mark.parametrize("case", FILTERS, ids=lambda case: str(case.spec))
    def test_filters_let_through_what_they_say(
        self, searcher: TwoStageSearcher, items: Mapping[Target, KnownItems], case: Any
    ) -> None:
        query = made_up_query(np.random.default_rng(6))
        options: dict[str, Any] = {"rerank": False, "filter": case.spec}
        for modality, target in DIRECTIONS:
            passing = [each for each in items[target].values() if case.passes(each.item.metadata)]
            expected = slow_match(passing, query, modality)
            assert_matched(run_search(searcher, query, modality, target, k=99, **options), expected)
            page = run_search(searcher, query, modality, target, k=3, offset=4, **options)
            assert [hit.id for hit in page.hits] == [each.id for each in expected[4:7]]

    def test_items_are_found_by_their_ids_whatever_these_are_and_the_filter_is(
        self, searcher: TwoStageSearcher, items: Mapping[Target, KnownItems]
    ) -> None:
        assert set(ODD_IDS) < items["images"].keys()
        for target, modality in (("images", "image"), ("texts", "text")):
            collection = searcher.index.collection(target)
            wanted = [*items[target], "nobody", "\ud800", next(iter(items[target]))]
            together = dict(zip(wanted, collection.items.by_ids(wanted), strict=True))
            assert together["nobody"] is together["\ud800"] is None
            for item_id, each in items[target].items():
                stored = collection.items.by_id(item_id)
                assert stored is not None and stored == together[item_id]
                assert stored == each.item._replace(row=stored.row)
                assert collection.items.by_rows([stored.row]) == [stored]
                encoding, its_modality = searcher.stored_query(item_id)[:2]
                assert its_modality == modality
                np.testing.assert_array_equal(encoding.embedding[0], each.embedding)
                np.testing.assert_array_equal(encoding.tokens[0], each.tokens)
        for unknown in ("photo", "A space", "e", "", "\ud800", "x" * 301):
            assert searcher.index.collection("images").items.by_id(unknown) is None
            with pytest.raises(UnknownItemError):
                searcher.find_item(unknown)
        nothing = parse_filter({"number": {"gt": 1000}})
        collection = searcher.index.collection("images", nothing)
        found = collection.items.by_id("photo 39")
        assert found is not None and found.metadata == metadata_of(39)
        assert (collection.count, len(collection.tokens(found.row)) > 0) == (PHOTOS, True)

    def test_a_longer_order_begins_with_a_shorter_one(
        self, index: SearchBackend, items: Mapping[Target, KnownItems]
    ) -> None:
        query = made_up_query(np.random.default_rng(7))
        embedding = query.embedding[0]
        expected = slow_match(items["images"].values(), query)
        collection = index.collection("images")
        for second in (None, SecondStageQuery(query.item_tokens(0), "text")):
            for count in (0, 1, 6, 7, 20, PHOTOS, 99):
                found = collection.order(FirstStageQuery(embedding, count, 6, second))
                assert found.candidates == 6
                assert (found.rows.dtype, found.match.dtype) == (np.int64, np.float32)
                ids = [item.id for item in collection.items.by_rows(found.rows.tolist())]
                assert ids == [each.id for each in expected[:count]]
                cosines = [each.match for each in expected[:count]]
                assert found.match.tolist() == pytest.approx(cosines, abs=TOLERANCE)
            every = collection.order(FirstStageQuery(embedding, 3, 99, second))
            assert every.candidates == PHOTOS

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
        collection = index.collection(target)
        found = collection.order(FirstStageQuery(query.embedding[0], 9, 9)).rows
        rows = found[[4, 0, 8, 2, 4]]
        stored = [items[target][item.id] for item in collection.items.by_rows(rows.tolist())]
        assert collection.lengths(rows).tolist() == [len(each.tokens) for each in stored]
        expected = [tokens @ each.tokens.T for each in stored]
        for actual, wanted in zip(
            collection.similarities(tokens, modality, rows), expected, strict=True
        ):
            np.testing.assert_allclose(actual, wanted, atol=TOLERANCE)
        best = [(each if modality == "text" else each.T).max(axis=1).sum() for each in expected]
        np.testing.assert_allclose(
            collection.align(tokens, modality, rows), best, atol=10 * TOLERANCE
        )
        for row, each in zip(rows.tolist(), stored, strict=True):
            np.testing.assert_array_equal(collection.tokens(row), each.tokens)
            np.testing.assert_array_equal(collection.embedding(row), each.embedding)
        together = collection.embeddings(rows.tolist())
        np.testing.assert_array_equal(together, [each.embedding for each in stored])
        nothing = rows[:0]
        assert collection.align(tokens, modality, nothing).shape == (0,)
        assert collection.similarities(tokens, modality, nothing) == []
        assert collection.lengths(nothing).shape == (0,)

    @pytest.mark.parametrize(("modality", "target"), DIRECTIONS)
    def test_several_queries_get_what_each_gets_alone(
        self, index: SearchBackend, modality: Modality, target: Target
    ) -> None:
        random, collection = np.random.default_rng(9), index.collection(target)
        queries = [made_up_query(random) for _ in range(3)]
        tokens = [query.item_tokens(0) for query in queries]
        asked = [
            FirstStageQuery(query.embedding[0], count, 6, SecondStageQuery(each, modality))
            for query, each, count in zip(queries, tokens, (3, 9, 6), strict=True)
        ]
        ordered = collection.order_all(asked)
        rows = [each.rows for each in ordered]
        assert [of.tolist() for of in rows] == [collection.order(q).rows.tolist() for q in asked]
        together = collection.align_all(tokens, modality, rows)
        for query, each, found, align in zip(queries, tokens, ordered, together, strict=True):
            alone = collection.align(each, modality, found.rows)
            np.testing.assert_allclose(align, alone, atol=TOLERANCE)
            [match] = collection.match(query.embedding, [1.0], found.rows)
            np.testing.assert_allclose(match, found.match, atol=TOLERANCE)
            # Without a hub correction, nothing is undone.
            stage = SecondStageQuery(each, modality)
            raw = collection.raw_scores(stage, found.rows, found.match, align)
            assert raw.match is found.match and raw.align is align
        assert collection.match(queries[0].embedding, [1.0], rows[0][:0]).shape == (1, 0)

    def test_evidence_is_each_words_best_region_and_adds_up_to_the_score(
        self, searcher: TwoStageSearcher, items: Mapping[Target, KnownItems]
    ) -> None:
        text = "a red dog sleeps by the boat"
        model = searcher.index.checkpoint.model
        asked: list[tuple[Encoding, Modality, Target, str | None]] = [
            (encode_texts(model, [text]), "text", "images", text),
            (searcher.stored_query("photo 20").encoding, "image", "texts", None),
        ]
        options: dict[str, Any] = {"k": 9, "explain": True, "size_px": (40, 30)}
        for query, modality, target, query_text in asked:
            hits = run_search(searcher, query, modality, target, text=query_text, **options).hits
            assert len(hits) == 9
            for hit in hits:
                similarity = query.item_tokens(0) @ items[target][hit.id].tokens.T
                of_words = similarity if modality == "text" else similarity.T
                evidence, best = hit.evidence or (), of_words.max(axis=1)
                scores = [each.score for each in evidence]
                assert scores == pytest.approx(best, abs=TOLERANCE)
                shown = [of_words[word, each.region] for word, each in enumerate(evidence)]
                assert shown == pytest.approx(best, abs=TOLERANCE)
                assert hit.stages.align is not None
                total = pytest.approx(hit.stages.align.score, abs=10 * TOLERANCE)
                assert sum(scores) == total

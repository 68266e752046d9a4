"""A GPU answers as the processor does, is proven first, and is left with one warning."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from aladin_index.ann.exact_search import exact_search
from aladin_index.devices import card as card_module
from aladin_index.devices import card_scan, card_tokens, card_vectors, search_device
from aladin_index.devices.card import Card
from aladin_index.devices.card_scan import CardScan
from aladin_index.devices.card_tokens import CardTokens
from aladin_index.devices.card_vectors import CardVectors
from aladin_index.devices.search_device import SearchDevice
from aladin_index.generations.reader import open_index
from aladin_index.items.selection import Selection
from aladin_index.search.collection import ExhaustiveQuery, FirstStageQuery
from aladin_index.search.file_collection import StoredCollection
from aladin_index.search.scan import ScanQuery
from aladin_index.tokens.codec import PackedTokens, TokenCodec
from aladin_index.tokens.maxsim import alignment_with_candidates
from aladin_index.tokens.store import TokenStore
from aladin_network.errors import ConfigError
from aladin_network.scoring.fusion import DirectionFusion
from tests.index.devices.fake_faiss_card import FakeCard, FakeFaiss
from tests.index.vectors import unit_vectors

MakeCollection = Callable[..., StoredCollection]
CPU = torch.device("cpu")
RANDOM = np.random.default_rng(0)


@pytest.fixture
def warnings(caplog: pytest.LogCaptureFixture) -> pytest.LogCaptureFixture:
    caplog.set_level(logging.WARNING, logger="index")
    return caplog


@pytest.fixture
def library() -> FakeFaiss:
    return FakeFaiss()


@pytest.fixture
def device(library: FakeFaiss) -> Iterator[SearchDevice]:
    device = SearchDevice(FakeCard(library))
    yield device
    device.close()


def placed_on(device: SearchDevice, collection: StoredCollection) -> StoredCollection:
    return device.place({"images": collection})["images"]


def nearest(vectors: np.ndarray, query: np.ndarray, count: int) -> np.ndarray:
    return np.argsort(-(vectors @ query), kind="stable")[:count]


@pytest.mark.parametrize(
    ("has_cuda", "name", "refused", "warned"),
    [
        (False, "auto", None, None),
        (False, "cuda", "PyTorch finds no CUDA device here; give cpu or auto", None),
        (True, "auto", None, "FAISS finds no GPU"),
        (True, "cuda", "FAISS finds no GPU", None),
    ],
)
def test_cuda_is_a_gpu_or_an_error_and_auto_is_a_gpu_or_the_processor(
    has_cuda: bool,
    name: Any,
    refused: str | None,
    warned: str | None,
    warnings: pytest.LogCaptureFixture,
    make_collection: MakeCollection,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def find() -> Card:
        return FakeCard(FakeFaiss(cards=0))

    monkeypatch.setattr(torch.cuda, "is_available", lambda: has_cuda)
    monkeypatch.setattr(search_device, "find_card", find)
    if refused is not None:
        with pytest.raises(ConfigError, match=f"--device cuda: {refused}"):
            SearchDevice.choose(name)
    else:
        collections = {"images": make_collection(unit_vectors(50))}
        assert SearchDevice.choose(name).place(collections) is collections
    assert warnings.messages == ([] if warned is None else [f"searching on the CPU: {warned}"])


def test_a_gpu_that_finds_the_wrong_items_is_left_with_one_warning_or_refused(
    warnings: pytest.LogCaptureFixture, make_collection: MakeCollection
) -> None:
    library = FakeFaiss()
    library.wrong = True
    device = SearchDevice(FakeCard(library))
    for size in (500, 60):
        collections = {"images": make_collection(unit_vectors(size))}
        assert device.place(collections) is collections
    (message,) = warnings.messages
    assert message.startswith("searching on the CPU: ") and "of the nearest 100 items" in message
    required = SearchDevice(FakeCard(library), is_required=True)
    with pytest.raises(ConfigError, match=r"--device cuda: .* of the nearest 50 items"):
        required.place({"images": make_collection(unit_vectors(50))})
    device.close()
    required.close()


def test_an_index_that_does_not_fit_is_refused_before_anything_is_copied(
    warnings: pytest.LogCaptureFixture, make_collection: MakeCollection
) -> None:
    tokens = [unit_vectors(9, 128)] * 3000
    collections = {"images": make_collection(unit_vectors(3000, 256), tokens)}
    # Embeddings 1.5 MB; tokens in half precision 6.9 MB, in 8 bits 3.6, in 4 bits 1.9.
    for size, fits in (
        (8_500_000, None),
        (5_500_000, "--tokens int8"),
        (4_500_000, "--tokens 4bit"),
        (2_500_000, "no form of tokens fits"),
    ):
        for is_required in (False, True):
            card = FakeCard(free_bytes=2 * 2**30 + size)
            device = SearchDevice(card, is_required=is_required)
            if fits is None:
                assert device.place(collections) is not collections
            elif is_required:
                with pytest.raises(ConfigError, match=f"expected .* for float16 tokens.*{fits}"):
                    device.place(collections)
            else:
                assert device.place(collections) is collections
                assert fits in warnings.messages[-1]
            assert device.is_good  # a smaller index may fit


@pytest.mark.parametrize(
    ("factory", "width"), [("Flat", None), ("HNSW16,Flat", 64), ("IVF20,SQ8", 5)]
)
@pytest.mark.parametrize("has_faiss", [True, False])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16])
def test_a_batch_is_compared_with_every_item_in_one_call(
    dtype: torch.dtype,
    has_faiss: bool,
    factory: str,
    width: int | None,
    library: FakeFaiss,
    make_collection: MakeCollection,
) -> None:
    vectors, queries = unit_vectors(3000), unit_vectors(3005)[3000:]
    device = SearchDevice(FakeCard(library if has_faiss else None, dtype))
    placed = placed_on(device, make_collection(vectors, factory=factory, search_width=width))
    library.searches.clear()
    found = placed.candidates_of_all(list(queries), 100)
    assert library.searches == [("all", 5)] * has_faiss
    for query, (rows, scores) in zip(queries, found, strict=True):
        np.testing.assert_array_equal(rows, nearest(vectors, query, 100))
        np.testing.assert_allclose(scores, vectors[rows] @ query, atol=1e-6)
    device.close()


def test_inverted_lists_are_searched_where_there_are_many_items(
    library: FakeFaiss,
    device: SearchDevice,
    make_collection: MakeCollection,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(card_vectors, "CARD_FLAT_UP_TO", 2999)
    vectors, queries = unit_vectors(3000), unit_vectors(3005)[3000:]
    collection = make_collection(vectors, factory="IVF20,SQ8", search_width=7, oversample=2.0)
    placed = placed_on(device, collection)
    library.searches.clear()
    found = placed.candidates_of_all(list(queries), 50)
    assert library.searches == [("lists", 5)] and library.lists[0].nprobe == 7
    for query, (rows, _) in zip(queries, found, strict=True):
        np.testing.assert_array_equal(rows, collection.candidates(query, 50)[0])
    # The stored index was not set: it is searched with its parameters call by call.
    assert collection.ann.faiss_index.nprobe == 1


def test_filters_and_long_lists_are_compared_on_the_device(
    library: FakeFaiss, make_collection: MakeCollection, monkeypatch: pytest.MonkeyPatch
) -> None:
    vectors, queries = unit_vectors(4000), unit_vectors(4003)[4000:]
    card = FakeCard(library)
    collection = make_collection(vectors)
    engine = CardVectors(card, collection.ann, collection.embeddings)
    in_blocks = [(2**28, "one block"), (4 * 3 * 37, "37 rows at a time")]
    third, few = np.arange(4000) % 3 == 0, np.arange(4000) < 3
    for size, _ in in_blocks:
        monkeypatch.setattr(card_vectors, "BLOCK_BYTES", size)
        for allowed, count in ((third, 100), (few, 40), (None, 3000)):
            selection = None if allowed is None else Selection.of_mask(allowed)
            for query, rows in zip(queries, engine.search(queries, count, selection), strict=True):
                expected, _ = exact_search(vectors, query, count, selection)
                assert len(rows) == len(set(rows)) and set(expected) <= set(rows)
                assert allowed is None or allowed[rows].all()
    assert library.searches == []
    placed = placed_on(SearchDevice(card), collection)
    monkeypatch.setattr(type(collection.ann), "search_scored", lambda *_: pytest.fail("on the CPU"))
    monkeypatch.setattr("aladin_index.ann.first_stage.exact_search", lambda *_: pytest.fail("CPU"))
    for rows, _ in placed.candidates_of_all(list(queries), 20, Selection.of_mask(third)):
        assert len(rows) == 20 and third[rows].all()
    for rows, _ in placed.candidates_of_all(list(queries), 20, Selection.of_mask(few)):
        assert set(rows) == {0, 1, 2}  # fewer than are wanted, and still found on the device
    card.close()


def test_a_gpu_that_fails_while_searching_is_left_and_no_query_is_lost(
    library: FakeFaiss,
    device: SearchDevice,
    warnings: pytest.LogCaptureFixture,
    make_collection: MakeCollection,
) -> None:
    vectors = unit_vectors(3000)
    placed = placed_on(device, make_collection(vectors))
    library.fails_at = len(library.searches) + 5
    with ThreadPoolExecutor(4) as pool:
        answers = list(pool.map(lambda query: placed.candidates(query, 20)[0], vectors[:60]))
    for query, rows in zip(vectors[:60], answers, strict=True):
        np.testing.assert_array_equal(rows, nearest(vectors, query, 20))
    (message,) = warnings.messages
    assert "illegal memory access" in message


def test_stages_that_fail_are_left_with_one_warning(
    published: Path, warnings: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> None:
        raise torch.OutOfMemoryError("CUDA out of memory")

    device = SearchDevice(FakeCard())
    with open_index(published) as plain, open_index(published, device=device) as on_card:
        assert plain.images is not None and on_card.images is not None
        monkeypatch.setattr(CardTokens, "align_all", fail)
        words = unit_vectors(4, plain.images.entry.token_dim)
        asked = [words], "text", [np.arange(plain.images.entry.count)]
        for _ in range(2):
            [found] = on_card.images.second_stage.align_all(*asked)
            [expected] = plain.images.second_stage.align_all(*asked)
            np.testing.assert_array_equal(found, expected)
        assert on_card.images.scan is not None
        assert on_card.images.scan.best([]) is None  # the processor scores all items
    assert warnings.messages == ["searching on the CPU: CUDA out of memory"]
    assert not device.is_good


def store(dtype: Any) -> TokenStore:
    """60 items of up to 8 tokens; the fifth has none."""
    lengths = RANDOM.integers(0, 9, 60)
    lengths[5] = 0
    codec = TokenCodec.train(dtype, unit_vectors(3000, 24))
    packed = codec.pack(unit_vectors(int(lengths.sum()), 24, seed=1))
    return TokenStore.from_arrays(codec, packed, lengths)


def even(dtype: Any) -> TokenStore:
    """60 items of 4 tokens each."""
    codec = TokenCodec.train(dtype, unit_vectors(3000, 24))
    return TokenStore.from_arrays(codec, codec.pack(unit_vectors(240, 24, seed=1)), [4] * 60)


def slow_score(query: np.ndarray, modality: str, tokens: np.ndarray) -> float:
    words, regions = (query, tokens) if modality == "text" else (tokens, query)
    if len(words) == 0 or len(regions) == 0:
        return 0.0
    return float(sum(max(word @ region for region in regions) for word in words))


@pytest.mark.parametrize("dtype", ["float16", "int8", "4bit"])
@pytest.mark.parametrize("block_bytes", [2**28, 4 * 8 * 24 * 5 * 3])
@pytest.mark.parametrize("longest", [8, 1])
def test_scores_are_those_of_loops_and_of_the_processor(
    longest: int, block_bytes: int, dtype: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(card_tokens, "BLOCK_BYTES", block_bytes)
    tokens = store(dtype) if longest > 1 else even(dtype)
    engine = CardTokens(FakeCard(), tokens)
    queries = [unit_vectors(size, 24, seed=size) for size in (6, 0, 2)]
    rows = [RANDOM.permutation(60)[:count] for count in (41, 7, 0)]
    rows[0][7] = 5  # without tokens
    for modality in ("text", "image"):
        found = engine.align_all(queries, modality, rows)
        every = engine.align_range(engine.asked(queries, modality), 10, 60).numpy()
        for place, (query, of) in enumerate(zip(queries, rows, strict=True)):
            expected = [
                slow_score(query, modality, tokens.read(of[[n]]).values) for n in range(len(of))
            ]
            np.testing.assert_allclose(found[place], expected, atol=2e-5)
            slow = [
                slow_score(query, modality, tokens.read(np.array([row])).values)
                for row in range(10, 60)
            ]
            np.testing.assert_allclose(every[place], slow, atol=2e-5)
            processor = alignment_with_candidates(query, modality, tokens, of)
            np.testing.assert_allclose(found[place], processor, atol=0.02)
    assert engine.align_all([], "text", []) == []


def test_a_codebook_may_have_as_many_centroids_as_two_bytes_tell_apart() -> None:
    codec = TokenCodec("4bit", 8, unit_vectors(40_000, 8))
    packed = PackedTokens(
        np.zeros((3, 4), dtype=np.uint8),
        np.full(3, 1e-6, dtype=np.float32),
        np.array([39_999, 5, 32_768], dtype=np.uint16),
    )
    tokens, query = TokenStore.from_arrays(codec, packed, [1, 1, 1]), unit_vectors(2, 8, seed=1)
    [found] = CardTokens(FakeCard(), tokens).align_all([query], "text", [np.arange(3)])
    expected = (codec.centroids[[39_999, 5, 32_768]] @ query.T).sum(axis=1)
    np.testing.assert_allclose(found, expected, atol=1e-3)


@pytest.mark.parametrize("lengths", ["even", "uneven"])
@pytest.mark.parametrize("block_bytes", [2**28, 2**15])
def test_an_exhaustive_search_finds_the_best_of_all_items_by_either_score(
    block_bytes: int, lengths: str, make_collection: MakeCollection, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(card_tokens, "BLOCK_BYTES", block_bytes)
    monkeypatch.setattr(card_scan, "with_margin", lambda count: count)
    sizes = [4] * 500 if lengths == "even" else RANDOM.integers(0, 5, 500).tolist()
    items = np.split(unit_vectors(sum(sizes), 24, seed=3), np.cumsum(sizes)[:-1])
    vectors = unit_vectors(500)  # the last value is a bias of the alignment, too
    collection = make_collection(vectors, items, dtype="float16")
    card, ann = FakeCard(), collection.ann
    scan = CardScan(card, CardVectors(card, ann, vectors), CardTokens(card, collection.tokens))
    allowed, stored = (
        np.arange(500) % 4 > 0,
        [collection.tokens.read(np.array([n])).values for n in range(500)],
    )
    asked: list[ScanQuery] = []
    for place, weight in enumerate([1.0, 0.0, 0.5, 0.5, 0.3]):
        fusion = DirectionFusion(align_mean=0.5, align_std=0.2, match_std=0.1 * (1 + place // 4))
        first = FirstStageQuery(vectors[0], wanted=5 + place, candidates=3 * place)
        tokens, modality = (
            unit_vectors(1 + place, 24, seed=place),
            "image" if place == 3 else "text",
        )
        query = ExhaustiveQuery(first, fusion, weight, without=[7 * place, 498, 600])
        vector = unit_vectors(505)[500 + place]
        asked.append(ScanQuery(query, vector, tokens, modality, bias_count=place % 3))
    for selection in (None, Selection.of_mask(allowed)):
        found = scan.best(asked, selection)
        for each, (rows, nearer) in zip(asked, found, strict=True):
            align = [slow_score(each.tokens, each.modality, tokens) for tokens in stored]
            match = vectors @ each.vector
            total = each.query.fusion.combine(
                np.array(align) + each.bias_count * vectors[:, -1], match, each.query.weight
            )
            left = np.ones(500, dtype=bool) if selection is None else allowed.copy()
            left[each.query.without[:2]] = False
            for scores, count in ((total, each.wanted), (match, each.nearest)):
                best = np.argsort(-np.where(left, scores, -np.inf))[:count]
                assert set(best) <= set(rows)
            assert left[rows].all() and (np.diff(rows) > 0).all() and len(rows) < 120
            others = np.where(left, match, -np.inf)
            counts = [(others > match[row]).sum() for row in rows]
            np.testing.assert_array_equal(nearer(rows, match[rows]), counts)
            added = nearer(np.array([-1, -1]), np.array([0.1, 0.2], dtype=np.float32))
            np.testing.assert_array_equal(added, [(others > 0.1).sum(), (others > 0.2).sum()])


def test_arrays_are_copied_in_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(card_module, "_ROWS_AT_A_TIME", 7)
    values = RANDOM.standard_normal((20, 3)).astype(np.float32)
    copy = FakeCard().copy(values, torch.float16)
    np.testing.assert_array_equal(copy.numpy(), values.astype(np.float16))


@pytest.mark.gpu
@pytest.mark.parametrize("factory", ["Flat", "IVF16,SQ8", "HNSW16,Flat"])
@pytest.mark.parametrize("dtype", ["float16", "int8", "4bit"])
@pytest.mark.parametrize("flat_up_to", [10_000, 10**6])
def test_a_real_gpu_answers_as_the_processor_does(
    flat_up_to: int,
    dtype: str,
    factory: str,
    warnings: pytest.LogCaptureFixture,
    make_collection: MakeCollection,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(card_vectors, "CARD_FLAT_UP_TO", flat_up_to)
    device = SearchDevice.choose("cuda")
    vectors = unit_vectors(20_000, 64)
    tokens = list(unit_vectors(5 * 20_000, 32, seed=1).reshape(20_000, 5, 32))
    width = None if factory == "Flat" else 16 if "IVF" in factory else 512
    collection = make_collection(vectors, tokens, factory=factory, search_width=width, dtype=dtype)
    placed = placed_on(device, collection)
    assert warnings.messages == []
    queries, third = unit_vectors(20_010, 64)[20_000:], np.arange(20_000) % 3 == 0
    for allowed in (None, Selection.of_mask(third)):
        found = placed.candidates_of_all(list(queries), 100, allowed)
        for query, (rows, scores) in zip(queries, found, strict=True):
            expected, _ = exact_search(vectors, query, 100, allowed)
            assert len(np.intersect1d(rows, expected)) >= 98
            np.testing.assert_allclose(scores, vectors[rows] @ query, atol=1e-6)
        asked = (
            [unit_vectors(7, 32, seed=n) for n in range(10)],
            "text",
            [rows for rows, _ in found],
        )
        scores = placed.second_stage.align_all(*asked)
        for one, other in zip(scores, collection.second_stage.align_all(*asked), strict=True):
            np.testing.assert_allclose(one, other, atol=0.02)
    device.close()

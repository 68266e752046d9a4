"""A device answers as the processor does, is proven first, and is left with one warning."""

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
from aladin_index.devices.search_device import DeviceAlignment, DeviceHealth, SearchDevice
from aladin_index.devices.torch_stages import TorchAlignment, TorchExact
from aladin_index.generations.reader import open_index
from aladin_index.items.selection import Selection
from aladin_index.search.file_collection import StoredCollection
from aladin_index.search.searcher import TwoStageSearcher
from aladin_index.tokens.codec import TokenCodec
from aladin_index.tokens.maxsim import TokenAlignment, alignment_with_candidates
from aladin_index.tokens.store import TokenStore
from tests.index.devices.fake_faiss_card import FakeFaissCard
from tests.index.searching import run_search
from tests.index.vectors import unit_vectors

MakeCollection = Callable[..., StoredCollection]
# Nothing is put on it here: the library that stands for FAISS has the only card.
CARD, CPU = "cuda:0", torch.device("cpu")
RANDOM = np.random.default_rng(0)


@pytest.fixture
def warnings(caplog: pytest.LogCaptureFixture) -> pytest.LogCaptureFixture:
    caplog.set_level(logging.WARNING, logger="index")
    return caplog


@pytest.fixture
def card() -> FakeFaissCard:
    return FakeFaissCard()


@pytest.fixture
def device(card: FakeFaissCard) -> Iterator[SearchDevice]:
    device = SearchDevice(CARD, library=card)
    yield device
    device.close()


@pytest.mark.parametrize(
    ("chosen", "first_stage", "warned"),
    [("auto", "faiss", False), ("cuda", "faiss", True), ("cuda", "torch", True)],
)
def test_without_a_card_the_processor_searches_with_one_warning_unless_auto(
    chosen: str,
    first_stage: Any,
    warned: bool,
    warnings: pytest.LogCaptureFixture,
    make_collection: MakeCollection,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    device = SearchDevice.choose(chosen, first_stage)
    for collection in (make_collection(unit_vectors(50)), make_collection(unit_vectors(60))):
        assert device.place(collection) is collection
    expected = ["searching on the CPU: torch finds no CUDA device"]
    assert warnings.messages == expected * warned


@pytest.mark.parametrize("reason", ["without support for cards", "of the 100 items that"])
def test_a_card_that_cannot_or_finds_the_wrong_items_is_left_with_one_warning(
    reason: str, warnings: pytest.LogCaptureFixture, make_collection: MakeCollection
) -> None:
    card = FakeFaissCard()
    card.wrong = True
    device = SearchDevice(CARD, library=card if "items" in reason else object())
    for collection in (make_collection(unit_vectors(500)), make_collection(unit_vectors(60))):
        assert device.place(collection) is collection
    (message,) = warnings.messages
    assert message.startswith("searching on the CPU: ") and reason in message
    device.close()


def test_a_proven_card_searches(
    card: FakeFaissCard,
    device: SearchDevice,
    warnings: pytest.LogCaptureFixture,
    make_collection: MakeCollection,
) -> None:
    vectors, query = unit_vectors(3000), unit_vectors(3001)[3000]
    placed = device.place(make_collection(vectors, factory="HNSW16,Flat", search_width=64))
    proven = card.copies[0].searches
    rows, scores = placed.candidates(query, 100)
    cosines = vectors @ query
    np.testing.assert_array_equal(rows, np.argsort(-cosines, kind="stable")[:100])
    np.testing.assert_allclose(scores, cosines[rows], atol=1e-6)
    assert card.copies[0].searches == proven + 1 > 1
    assert warnings.messages == []


def test_a_card_that_fails_while_searching_is_left_and_no_query_is_lost(
    card: FakeFaissCard,
    device: SearchDevice,
    warnings: pytest.LogCaptureFixture,
    make_collection: MakeCollection,
) -> None:
    vectors = unit_vectors(3000)
    placed = device.place(make_collection(vectors))
    card.copies[0].fails_at = card.copies[0].searches + 5
    with ThreadPoolExecutor(4) as pool:
        answers = list(pool.map(lambda query: placed.candidates(query, 20)[0], vectors[:60]))
    for query, rows in zip(vectors[:60], answers, strict=True):
        np.testing.assert_array_equal(rows, np.argsort(-(vectors @ query), kind="stable")[:20])
    (message,) = warnings.messages
    assert "illegal memory access" in message


def test_a_second_stage_that_fails_is_left_with_one_warning(
    warnings: pytest.LogCaptureFixture, make_collection: MakeCollection
) -> None:
    class Failing(TorchAlignment):
        def align_all(self, *_: object) -> list[np.ndarray]:
            raise torch.OutOfMemoryError("CUDA out of memory")

    tokens = make_collection(unit_vectors(20), [unit_vectors(3, 8) for _ in range(20)]).tokens
    spare, health = TokenAlignment(tokens), DeviceHealth()
    guarded = DeviceAlignment(Failing(tokens, CPU, 0), spare, health)
    asked = [unit_vectors(4, 8)], "text", [np.arange(20)]
    for _ in range(2):
        np.testing.assert_array_equal(guarded.align_all(*asked), spare.align_all(*asked))
    assert warnings.messages == ["searching on the CPU: CUDA out of memory"]
    assert not health.is_good


def test_an_index_on_torch_answers_as_it_does_without(
    published: Path, warnings: pytest.LogCaptureFixture
) -> None:
    device = SearchDevice.choose("cpu", "torch")
    with open_index(published) as plain, open_index(published, device=device) as placed:
        assert placed.images is not None and plain.images is not None
        assert placed.images.first_stages != plain.images.first_stages
        for item_id in ("text 0", "text 3", "photo 2"):
            query, modality = TwoStageSearcher(plain).stored_query(item_id)[:2]
            for target in ("images", "texts"):
                one, other = (
                    run_search(TwoStageSearcher(at), query, modality, target, candidates=12)
                    for at in (plain, placed)
                )
                assert one.hits == other.hits
    assert warnings.messages == []


@pytest.mark.parametrize("dtype", [torch.float16, torch.float32])
def test_torch_finds_the_nearest_of_the_rows_allowed_in_any_blocks(
    dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch
) -> None:
    vectors = unit_vectors(3000, 24)
    engine = TorchExact(vectors, CPU, dtype)
    half, few = (Selection.of_mask(np.arange(3000) % 7 < 3), Selection.of_mask(np.arange(3000) < 3))
    for query in unit_vectors(3010, 24)[3000:]:
        for allowed in (None, half):
            nearest, _ = exact_search(vectors, query, 100, allowed)
            found = engine.search(query, 100, allowed)
            assert len(found) == len(set(found)) == 126
            assert set(nearest) <= set(found)
            assert allowed is None or allowed.mask[found].all()
        assert set(engine.search(query, 40, few)) == {0, 1, 2}
    monkeypatch.setattr("aladin_index.devices.torch_stages._ROWS_AT_A_TIME", 37)
    in_blocks = TorchExact(vectors, CPU, dtype).search(query, 100)
    assert set(in_blocks) == set(engine.search(query, 100))


def store(dtype: Any) -> TokenStore:
    """60 items of up to 8 tokens; the fifth has none."""
    lengths = RANDOM.integers(0, 9, 60)
    lengths[5] = 0
    codec = TokenCodec.train(dtype, unit_vectors(3000, 24))
    packed = codec.pack(unit_vectors(int(lengths.sum()), 24, seed=1))
    return TokenStore.from_arrays(codec, packed, lengths)


def slow_score(query: np.ndarray, modality: str, tokens: np.ndarray) -> float:
    words, regions = (query, tokens) if modality == "text" else (tokens, query)
    if len(words) == 0 or len(regions) == 0:
        return 0.0
    return float(sum(max(word @ region for region in regions) for word in words))


@pytest.mark.parametrize("dtype", ["float16", "int8", "4bit"])
@pytest.mark.parametrize("budget_bytes", [0, 2**30])
def test_scores_of_torch_are_those_of_loops_and_of_the_processor(
    dtype: str, budget_bytes: int
) -> None:
    tokens = store(dtype)
    engine = TorchAlignment(tokens, CPU, budget_bytes)
    assert engine.is_resident == (budget_bytes > 0 and dtype != "4bit")
    query, rows = unit_vectors(6, 24, seed=2), RANDOM.permutation(60)[:41]
    rows[7] = 5  # without tokens
    for modality in ("text", "image"):
        for asked, of in ((query, rows), (query[:0], rows), (query, rows[:0])):
            expected = [
                slow_score(asked, modality, tokens.read(of[[n]]).values) for n in range(len(of))
            ]
            found = engine.align(asked, modality, of)
            np.testing.assert_allclose(found, expected, atol=2e-5)
        processor = alignment_with_candidates(query, modality, tokens, rows)
        np.testing.assert_allclose(engine.align(query, modality, rows), processor, atol=0.02)


def test_tokens_are_kept_on_the_device_within_its_budget() -> None:
    tokens = store("int8")
    size = tokens.stored.count * (24 + 4)
    assert TorchAlignment(tokens, CPU, size).is_resident
    assert not TorchAlignment(tokens, CPU, size - 1).is_resident


@pytest.mark.gpu
@pytest.mark.parametrize("first_stage", ["faiss", "torch"])
@pytest.mark.parametrize("factory", ["Flat", "IVF16,SQ8", "HNSW16,Flat"])
def test_a_real_card_answers_as_the_processor_does(
    first_stage: Any,
    factory: str,
    warnings: pytest.LogCaptureFixture,
    make_collection: MakeCollection,
) -> None:
    device = SearchDevice.choose("cuda", first_stage)
    vectors = unit_vectors(20_000, 64)
    tokens = [unit_vectors(5, 32)] * 20_000
    width = None if factory == "Flat" else 16 if "IVF" in factory else 512
    collection = make_collection(vectors, tokens, factory=factory, search_width=width, dtype="int8")
    placed = device.place(collection)
    assert placed is not collection
    assert warnings.messages == []
    query = unit_vectors(7, 32)
    for embedding in unit_vectors(20_010, 64)[20_000:]:
        rows, scores = placed.candidates(embedding, 100)
        expected, _ = collection.candidates(embedding, 100)
        if first_stage == "torch":  # exact, whatever the index has stored
            expected = np.argsort(-(vectors @ embedding), kind="stable")[:100]
        assert len(np.intersect1d(rows, expected)) >= 98
        np.testing.assert_allclose(scores, vectors[rows] @ embedding, atol=1e-6)
        np.testing.assert_allclose(
            placed.second_stage.align_all([query], "text", [rows]),
            collection.second_stage.align_all([query], "text", [rows]),
            atol=0.02,
        )
    device.close()

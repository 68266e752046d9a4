"""Devices are proven before they are used, and left with one warning when they fail."""

import logging
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
import torch

from aladin_index.devices.search_device import (
    DeviceAlignment,
    DeviceHealth,
    SearchDevice,
)
from aladin_index.devices.torch_stages import TorchAlignment
from aladin_index.generations.reader import open_index
from aladin_index.search.file_collection import StoredCollection
from aladin_index.search.searcher import TwoStageSearcher
from aladin_index.tokens.maxsim import TokenAlignment
from tests.index.devices.fake_faiss_card import FakeFaissCard
from tests.index.searching import run_search
from tests.index.vectors import unit_vectors

MakeCollection = Callable[..., StoredCollection]
# Nothing is put on it here: the library that stands for FAISS has the only card.
CARD = "cuda:0"


@pytest.fixture
def no_card(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)


@pytest.fixture
def warnings(caplog: pytest.LogCaptureFixture) -> pytest.LogCaptureFixture:
    caplog.set_level(logging.WARNING, logger="index")
    return caplog


@pytest.mark.usefixtures("no_card")
def test_auto_without_a_card_is_the_processor_without_a_word(
    warnings: pytest.LogCaptureFixture, make_collection: MakeCollection
) -> None:
    device = SearchDevice.choose("auto")
    collection = make_collection(unit_vectors(50))
    assert device.device == "cpu"
    assert device.place(collection) is collection
    assert warnings.messages == []


@pytest.mark.usefixtures("no_card")
@pytest.mark.parametrize("first_stage", ["faiss", "torch"])
def test_cuda_without_a_card_is_the_processor_with_one_warning(
    first_stage: str, warnings: pytest.LogCaptureFixture, make_collection: MakeCollection
) -> None:
    device = SearchDevice.choose("cuda", first_stage)  # type: ignore[arg-type]
    collections = [make_collection(unit_vectors(50)), make_collection(unit_vectors(60))]
    assert [device.place(collection) is collection for collection in collections] == [True, True]
    assert warnings.messages == ["searching on the CPU: torch finds no CUDA device"]


def test_a_wheel_without_cards_is_left_with_one_warning(
    warnings: pytest.LogCaptureFixture, make_collection: MakeCollection
) -> None:
    device = SearchDevice(CARD, library=object())
    collections = [make_collection(unit_vectors(50)), make_collection(unit_vectors(60))]
    assert [device.place(collection) is collection for collection in collections] == [True, True]
    assert warnings.messages == [
        "searching on the CPU: this FAISS was built without support for cards (faiss-cpu)"
    ]
    device.close()


def test_a_card_that_finds_the_wrong_items_is_left_with_one_warning(
    warnings: pytest.LogCaptureFixture, make_collection: MakeCollection
) -> None:
    library = FakeFaissCard()
    library.wrong = True
    device = SearchDevice(CARD, library=library)
    collection = make_collection(unit_vectors(500))
    assert device.place(collection) is collection
    (message,) = warnings.messages
    assert "of the 100 items that the processor finds" in message
    device.close()


def test_a_proven_card_searches(
    warnings: pytest.LogCaptureFixture, make_collection: MakeCollection
) -> None:
    library = FakeFaissCard()
    device = SearchDevice(CARD, library=library)
    vectors = unit_vectors(3000)
    collection = make_collection(vectors, factory="HNSW16,Flat", search_width=64)
    placed = device.place(collection)
    proven = library.copies[0].searches
    assert proven > 0
    query = unit_vectors(3001)[3000]
    rows, scores = placed.candidates(query, 100)
    cosines = vectors @ query
    np.testing.assert_array_equal(rows, np.argsort(-cosines, kind="stable")[:100])
    np.testing.assert_allclose(scores, cosines[rows], atol=1e-6)
    assert library.copies[0].searches == proven + 1
    assert warnings.messages == []
    device.close()


def test_a_card_that_fails_while_searching_is_left_with_one_warning_and_no_query_is_lost(
    warnings: pytest.LogCaptureFixture, make_collection: MakeCollection
) -> None:
    library = FakeFaissCard()
    device = SearchDevice(CARD, library=library)
    vectors = unit_vectors(3000)
    placed = device.place(make_collection(vectors))
    library.copies[0].fails_at = library.copies[0].searches + 5
    queries = vectors[:60]
    with ThreadPoolExecutor(4) as pool:
        answers = list(pool.map(lambda query: placed.candidates(query, 20)[0], queries))
    for query, rows in zip(queries, answers, strict=True):
        np.testing.assert_array_equal(rows, np.argsort(-(vectors @ query), kind="stable")[:20])
    (message,) = warnings.messages
    assert "illegal memory access" in message
    device.close()


def test_a_second_stage_that_fails_is_left_with_one_warning(
    warnings: pytest.LogCaptureFixture, make_collection: MakeCollection
) -> None:
    tokens = [unit_vectors(3, 8) for _ in range(20)]
    collection = make_collection(unit_vectors(20), tokens)
    spare = TokenAlignment(collection.tokens)

    class Failing(TorchAlignment):
        def align_all(self, *_: object) -> list[np.ndarray]:
            raise torch.OutOfMemoryError("CUDA out of memory")

    failing = Failing(collection.tokens, torch.device("cpu"), 0)
    health = DeviceHealth()
    guarded = DeviceAlignment(failing, spare, health)
    query, rows = unit_vectors(4, 8), np.arange(20)
    for _ in range(2):
        np.testing.assert_array_equal(
            guarded.align_all([query], "text", [rows]), spare.align_all([query], "text", [rows])
        )
    assert warnings.messages == ["searching on the CPU: CUDA out of memory"]
    assert not health.is_good


def test_exact_search_in_torch_answers_as_the_index_does(
    published: Path, warnings: pytest.LogCaptureFixture
) -> None:
    with (
        open_index(published) as plain,
        open_index(published, device=SearchDevice.choose("cpu", "torch")) as placed,
    ):
        assert placed.images is not None and plain.images is not None
        assert placed.images.first_stages != plain.images.first_stages
        for item_id in ("text 0", "text 3", "photo 2"):
            query, modality = TwoStageSearcher(plain).stored_query(item_id)[:2]
            for target in ("images", "texts"):
                answers = [
                    run_search(
                        TwoStageSearcher(index), query, modality, target, k=10, candidates=12
                    ).hits
                    for index in (plain, placed)
                ]
                assert answers[0] == answers[1]
    assert warnings.messages == []


@pytest.mark.gpu
@pytest.mark.parametrize("first_stage", ["faiss", "torch"])
@pytest.mark.parametrize("factory", ["Flat", "IVF16,SQ8", "HNSW16,Flat"])
def test_a_real_card_answers_as_the_processor_does(
    first_stage: str,
    factory: str,
    warnings: pytest.LogCaptureFixture,
    make_collection: MakeCollection,
) -> None:
    device = SearchDevice.choose("cuda", first_stage)  # type: ignore[arg-type]
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

"""FAISS on a GPU, with a library that stands for the wheel and the GPU."""

import gc
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch

from aladin_index.ann import faiss
from aladin_index.devices.faiss_card import (
    FaissCard,
    OwnerFailedError,
    OwnerThread,
    supports_cards,
)
from aladin_index.search.file_collection import StoredCollection
from tests.index.devices.fake_faiss_card import FakeFaiss
from tests.index.vectors import unit_vectors

MakeCollection = Callable[..., StoredCollection]


@pytest.fixture
def library() -> FakeFaiss:
    return FakeFaiss()


@pytest.fixture
def card(library: FakeFaiss) -> Iterator[FaissCard]:
    card = FaissCard(library)
    yield card
    card.close()


def test_a_machine_or_a_faiss_without_gpus_is_known() -> None:
    with pytest.raises(RuntimeError, match="FAISS finds no GPU"):
        FaissCard(FakeFaiss(cards=0))
    assert supports_cards(FakeFaiss())
    assert supports_cards() == hasattr(faiss, "StandardGpuResources")


def test_one_thread_searches_whoever_asks_and_a_failing_gpu_says_so_to_everyone(
    library: FakeFaiss, card: FaissCard
) -> None:
    vectors = torch.from_numpy(unit_vectors(500))

    def search(row: int) -> list[int]:
        return card.search_all(vectors, vectors[row : row + 1], 5)[0].tolist()

    with ThreadPoolExecutor(6) as pool:
        found = list(pool.map(search, range(100)))
    assert [rows[0] for rows in found] == list(range(100))
    assert library.threads == {"faiss-card"}
    library.fails_at = len(library.searches) + 1
    for _ in range(2):
        with pytest.raises(OwnerFailedError, match="illegal memory access"):
            search(0)
    assert len(library.searches) == 101


def test_the_thread_that_searches_frees_the_lists(
    card: FaissCard, make_collection: MakeCollection
) -> None:
    collection = make_collection(unit_vectors(300), factory="IVF4,SQ8", search_width=2)
    lists = card.copy_lists(collection.ann.faiss_index, 2)
    box = lists.box
    del lists
    gc.collect()
    query = torch.from_numpy(unit_vectors(1))
    card.search_all(query, query, 1)  # the thread has come to it by now
    assert box == []


def test_an_error_fails_every_waiter_and_all_who_come_later() -> None:
    owner = OwnerThread("owner")
    begun, go_on = threading.Event(), threading.Event()

    def fail() -> None:
        begun.set()
        go_on.wait(10)
        raise ValueError("the card is gone")

    first = owner.post(fail)
    begun.wait(10)
    waiting = [owner.post(lambda: 1) for _ in range(5)]
    assert owner.post(lambda: 1).done() is False
    go_on.set()
    for future in (first, *waiting):
        with pytest.raises(OwnerFailedError, match="the card is gone") as caught:
            future.result(10)
        assert isinstance(caught.value.__cause__, ValueError)
    with pytest.raises(OwnerFailedError, match="the card is gone"):
        owner.run(lambda: 1)
    owner.close()


def test_closing_ends_the_thread_and_fails_who_waits() -> None:
    owner = OwnerThread("to be closed")
    begun, go_on = threading.Event(), threading.Event()

    def slow() -> str:
        begun.set()
        go_on.wait(10)
        return "done"

    running = owner.post(slow)
    begun.wait(10)
    waiting = owner.post(lambda: "never")
    closing = threading.Thread(target=owner.close)
    closing.start()
    with pytest.raises(OwnerFailedError, match="closed"):
        waiting.result(10)
    go_on.set()
    closing.join(10)
    assert running.result(10) == "done"
    assert "to be closed" not in {thread.name for thread in threading.enumerate()}
    with pytest.raises(OwnerFailedError, match="closed"):
        owner.run(lambda: 1)

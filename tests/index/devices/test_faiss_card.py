"""FAISS on a card, with a library that stands for the wheel and the card."""

import gc
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest

from aladin_index.ann import faiss
from aladin_index.ann.exact_search import exact_search
from aladin_index.devices.faiss_card import FaissCard, GpuAnn, OwnerFailedError, OwnerThread
from aladin_index.items.selection import Selection
from aladin_index.search.file_collection import StoredCollection
from tests.index.devices.fake_faiss_card import FakeFaissCard
from tests.index.vectors import unit_vectors

MakeCollection = Callable[..., StoredCollection]
Copy = tuple[StoredCollection, GpuAnn]


@pytest.fixture
def library() -> FakeFaissCard:
    return FakeFaissCard()


@pytest.fixture
def copied(
    library: FakeFaissCard, make_collection: MakeCollection
) -> Iterator[Callable[..., Copy]]:
    """Return a function that copies a collection of some vectors to the card."""
    card = FaissCard(library)

    def copy(vectors: np.ndarray, **more: Any) -> Copy:
        collection = make_collection(vectors, **more)
        return collection, GpuAnn(card, collection.ann, collection.embeddings)

    yield copy
    card.close()


def test_a_machine_or_a_faiss_without_cards_is_refused_with_the_reason() -> None:
    with pytest.raises(RuntimeError, match="finds no card"):
        FaissCard(FakeFaissCard(cards=0))
    if not hasattr(faiss, "StandardGpuResources"):
        with pytest.raises(RuntimeError, match="built without support for cards"):
            FaissCard()


@pytest.mark.parametrize(("factory", "width"), [("Flat", None), ("HNSW16,Flat", 32)])
def test_plain_vectors_and_graphs_are_searched_exactly(
    copied: Callable[..., Copy], factory: str, width: int | None
) -> None:
    vectors = unit_vectors(3000)
    _, engine = copied(vectors, factory=factory, search_width=width)
    for query in unit_vectors(3010)[3000:]:
        found = engine.search(query, 50)
        nearest, _ = exact_search(vectors, query, 50)
        assert found is not None and set(nearest) <= set(found)
        assert len(found) == 71  # a tenth and 16 more, for half precision confuses some


def test_inverted_lists_are_copied_with_their_width(
    library: FakeFaissCard, copied: Callable[..., Copy]
) -> None:
    vectors = unit_vectors(3000)
    collection, engine = copied(vectors, factory="IVF20,Flat", search_width=5)
    assert library.copies[0].nprobe == 5
    found = engine.search(vectors[17], 50)
    assert found is not None and set(collection.ann.search(vectors[17], 50)) <= set(found)
    # Not the ANN's own index was set: it is searched with its parameters per call.
    assert collection.ann.faiss_index.nprobe == 1


def test_one_thread_searches_whoever_asks_and_a_failing_card_says_so_to_everyone(
    library: FakeFaissCard, copied: Callable[..., Copy]
) -> None:
    vectors = unit_vectors(500)
    _, engine = copied(vectors)
    with ThreadPoolExecutor(6) as pool:
        found = list(pool.map(lambda row: engine.search(vectors[row], 5), range(100)))
    assert all(rows is not None and row in rows for row, rows in enumerate(found))
    assert library.copies[0].threads == {"faiss-card"}
    library.copies[0].fails_at = library.copies[0].searches + 1
    for _ in range(2):
        with pytest.raises(OwnerFailedError, match="illegal memory access"):
            engine.search(vectors[0], 5)
    assert library.copies[0].searches == 101


def test_filters_and_long_lists_are_left_to_the_processor(
    library: FakeFaissCard, copied: Callable[..., Copy]
) -> None:
    vectors = unit_vectors(4000)
    _, engine = copied(vectors)
    assert engine.search(vectors[3], 20, Selection.of_mask(np.arange(4000) % 7 == 0)) is None
    assert engine.search(vectors[3], 3000) is None
    assert library.copies[0].searches == 0


def test_the_owner_frees_the_copy(make_collection: MakeCollection) -> None:
    collection, card = make_collection(unit_vectors(300)), FaissCard(FakeFaissCard())
    engine = GpuAnn(card, collection.ann, collection.embeddings)
    box = engine._on_card
    del engine
    gc.collect()
    card.owner.run(lambda: None)
    assert box == []
    card.close()


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

"""FAISS on a card, with a library that stands for the wheel and the card."""

import gc
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from aladin_index.ann import faiss
from aladin_index.ann.exact_search import exact_search
from aladin_index.devices.faiss_card import FaissCard, GpuAnn, OwnerFailedError
from aladin_index.items.selection import Selection
from aladin_index.search.file_collection import StoredCollection
from tests.index.devices.fake_faiss_card import FakeFaissCard

MakeCollection = Callable[..., StoredCollection]


def unit_vectors(count: int, dim: int = 16) -> np.ndarray:
    vectors = np.random.default_rng(0).standard_normal((count, dim)).astype(np.float32)
    return vectors / np.linalg.norm(vectors, axis=1, keepdims=True)


def on_a_card(collection: StoredCollection) -> tuple[FakeFaissCard, FaissCard, GpuAnn]:
    """Copy a collection to a card; the test closes the card."""
    library = FakeFaissCard()
    card = FaissCard(library)
    return library, card, GpuAnn(card, collection.ann, collection.embeddings)


def test_faiss_for_processors_is_refused_with_the_reason() -> None:
    if hasattr(faiss, "StandardGpuResources"):
        pytest.skip("this FAISS has support for cards")
    with pytest.raises(RuntimeError, match="built without support for cards"):
        FaissCard()


def test_a_machine_without_cards_is_refused_with_the_reason() -> None:
    with pytest.raises(RuntimeError, match="finds no card"):
        FaissCard(FakeFaissCard(cards=0))


@pytest.mark.parametrize("factory", ["Flat", "HNSW16,Flat"])
def test_plain_vectors_and_graphs_are_searched_exactly(
    factory: str, make_collection: MakeCollection
) -> None:
    vectors = unit_vectors(3000)
    collection = make_collection(
        vectors, factory=factory, search_width=32 if "HNSW" in factory else None
    )
    _, card, engine = on_a_card(collection)
    for query in unit_vectors(3010)[3000:]:
        found = engine.search(query, 50)
        nearest, _ = exact_search(vectors, query, 50)
        assert set(nearest) <= set(found)
        assert len(found) == 71  # a tenth and 16 more, for half precision confuses some
    card.close()


def test_inverted_lists_are_copied_with_their_width(make_collection: MakeCollection) -> None:
    vectors = unit_vectors(3000)
    collection = make_collection(vectors, factory="IVF20,Flat", search_width=5)
    library, card, engine = on_a_card(collection)
    assert library.copies[0].nprobe == 5
    query = vectors[17]
    assert set(collection.ann.search(query, 50)) <= set(engine.search(query, 50))
    # Not the ANN's own index was set: it is searched with its parameters per call.
    assert collection.ann.faiss_index.nprobe == 1
    card.close()


def test_one_thread_searches_whoever_asks(make_collection: MakeCollection) -> None:
    vectors = unit_vectors(500)
    collection = make_collection(vectors)
    library, card, engine = on_a_card(collection)
    with ThreadPoolExecutor(6) as pool:
        found = list(pool.map(lambda row: engine.search(vectors[row], 5), range(100)))
    assert all(row in rows for row, rows in enumerate(found))
    assert library.copies[0].threads == {"faiss-card"}
    card.close()


def test_filters_and_long_lists_are_left_to_the_processor(
    make_collection: MakeCollection,
) -> None:
    vectors = unit_vectors(4000)
    library, card, engine = on_a_card(make_collection(vectors))
    mask = np.zeros(4000, dtype=bool)
    mask[::7] = True
    assert engine.search(vectors[3], 20, Selection.of_mask(mask)) is None
    assert engine.search(vectors[3], 3000) is None
    assert library.copies[0].searches == 0
    card.close()


def test_a_failing_card_says_so_to_everyone(make_collection: MakeCollection) -> None:
    vectors = unit_vectors(300)
    collection = make_collection(vectors)
    library, card, engine = on_a_card(collection)
    library.copies[0].fails_at = 1
    for _ in range(2):
        with pytest.raises(OwnerFailedError, match="illegal memory access"):
            engine.search(vectors[0], 5)
    assert library.copies[0].searches == 1
    card.close()


def test_the_owner_frees_the_copy(make_collection: MakeCollection) -> None:
    collection = make_collection(unit_vectors(300))
    _, card, engine = on_a_card(collection)
    box = engine._on_card
    del engine
    gc.collect()
    card.owner.run(lambda: None)
    assert box == []
    card.close()

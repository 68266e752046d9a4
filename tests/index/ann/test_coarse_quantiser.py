"""Building inverted lists on a card: the same index as without one, made by what is on the card."""

from collections.abc import Callable
from typing import Any

import faiss
import numpy as np
import pytest

from aladin_index.ann import coarse_quantiser
from aladin_index.ann.ann_index import AnnIndex, build_ann
from aladin_index.ann.coarse_quantiser import builds_on_card, missing_card
from aladin_network.types import NullProgress
from tests.index.fake_gpu_faiss import FakeGpuFaiss
from tests.index.progress import CountedProgress
from tests.index.vectors import unit_vectors

COUNT, DIM, LISTS = 1200, 16, 16
SAME_LENGTH = unit_vectors(COUNT, DIM)
LENGTHS = np.random.default_rng(2).uniform(0.5, 2, (COUNT, 1)).astype(np.float32)
VECTORS = {"unit": SAME_LENGTH, "of all lengths": SAME_LENGTH * LENGTHS}
QUERIES = unit_vectors(20, DIM, seed=1)
# Flat lists, codes of residuals and of the vectors themselves, by threads and by fast scan.
KINDS = (
    "IVF16,Flat",
    "IVF16,SQ8",
    "IVF16,PQ8x4",
    "IVF16,PQ16x4fs",
    "IVF16,PQ8x4fsr",
    "IVF16,RaBitQ",
    "PCA8,IVF16,SQ8",
    "IVF16,PQ16x4fs,RFlat",
)

Cards = Callable[..., FakeGpuFaiss]


@pytest.fixture
def cards(monkeypatch: pytest.MonkeyPatch) -> Cards:
    """Give FAISS cards, see `FakeGpuFaiss`."""

    def given(*arguments: Any, **named: Any) -> FakeGpuFaiss:
        library = FakeGpuFaiss(*arguments, **named)
        monkeypatch.setattr(coarse_quantiser, "faiss", library)
        return library

    return given


def build(factory: str, vectors: np.ndarray, device: str = "cuda") -> Any:
    return build_ann(factory, vectors, NullProgress(), device)


def content(index: Any) -> bytes:
    """All of an index, as it is written."""
    return faiss.serialize_index(index).tobytes()


def members(index: Any) -> np.ndarray:
    """The list of every vector."""
    lists, found = index.invlists, np.full(index.ntotal, -1)
    for number in range(index.nlist):
        found[faiss.rev_swig_ptr(lists.get_ids(number), lists.list_size(number))] = number
    return found


@pytest.mark.parametrize("vectors", VECTORS)
@pytest.mark.parametrize("factory", KINDS)
def test_an_index_of_the_card_is_that_of_the_processor(
    cards: Cards, factory: str, vectors: str
) -> None:
    """To the last byte, so that it opens and is searched without a card."""
    expected = build(factory, VECTORS[vectors], "cpu")
    library = cards()
    assert content(build(factory, VECTORS[vectors])) == content(expected)
    # The card had the centroids, by the metric that suits the vectors.
    (on_card,) = library.on_card
    assert on_card.ntotal == LISTS
    metric = faiss.METRIC_INNER_PRODUCT if vectors == "unit" else faiss.METRIC_L2
    assert on_card.metric_type == metric


@pytest.mark.parametrize("vectors", VECTORS)
def test_the_card_trains_and_fills_the_lists(cards: Cards, vectors: str) -> None:
    """A card that looks at half of the values makes the lists of half of the values."""
    half = DIM // 2

    def seeing_half(index: Any) -> Any:
        seen = faiss.LinearTransform(DIM, half, False)
        faiss.copy_array_to_vector(np.eye(half, DIM, dtype=np.float32).ravel(), seen.A)
        seen.is_trained = True
        return faiss.IndexPreTransform(seen, faiss.IndexFlat(half, index.metric_type))

    cards(disguise=seeing_half)
    given = VECTORS[vectors]
    index = build("IVF16,SQ8", given)
    centroids = index.quantizer.reconstruct_n(0, LISTS)
    products = given[:, :half] @ centroids[:, :half].T
    distances = np.square(centroids[:, :half]).sum(axis=1) - 2 * products
    nearest = products.argmax(axis=1) if vectors == "unit" else distances.argmin(axis=1)
    np.testing.assert_array_equal(members(index), nearest)
    # What was trained is where the vectors are in this half, not in the other.
    spread = np.array([centroids[:, :half].std(), centroids[:, half:].std()])
    assert spread[0] > 1.3 * spread[1]


@pytest.mark.parametrize("factory", ["Flat", "HNSW8,Flat", "PQ8x4", "IVF16_HNSW8,Flat"])
def test_what_has_no_plain_list_of_centroids_is_built_on_the_processor(
    cards: Cards, factory: str
) -> None:
    expected = content(build(factory, SAME_LENGTH, "cpu"))
    library = cards()
    assert content(build(factory, SAME_LENGTH)) == expected
    assert library.on_card == []


def test_the_processor_begins_again_if_the_card_fails(
    cards: Cards, caplog: pytest.LogCaptureFixture
) -> None:
    expected = content(build("IVF16,SQ8", SAME_LENGTH, "cpu"))
    cards(disguise=faiss.IndexIDMap)  # which takes no centroids without ids
    progress = CountedProgress()
    assert content(build_ann("IVF16,SQ8", SAME_LENGTH, progress, "cuda")) == expected
    assert progress.pieces[-1] == ("vectors", COUNT, COUNT)
    (message,) = caplog.messages
    assert message.startswith("building the first stage on the CPU: ")


def test_a_card_is_used_where_the_network_is_on_one_and_faiss_finds_it(
    cards: Cards, monkeypatch: pytest.MonkeyPatch
) -> None:
    cards(2)
    devices = ("cuda", "cuda:0", "cpu")
    assert [builds_on_card(device) for device in devices] == [True, True, False]
    cards(0)
    assert (builds_on_card("cuda"), missing_card()) == (False, "FAISS finds no GPU")
    monkeypatch.setattr(coarse_quantiser, "faiss", object())
    assert missing_card() == "this FAISS was built without support for GPUs (faiss-cpu)"
    assert not builds_on_card("cuda")


@pytest.mark.gpu
@pytest.mark.parametrize("vectors", VECTORS)
@pytest.mark.parametrize("factory", KINDS)
def test_a_real_card_makes_the_same_lists(factory: str, vectors: str) -> None:
    if missing_card() is not None:
        pytest.skip(str(missing_card()))
    both = [build(factory, VECTORS[vectors], device) for device in ("cuda", "cpu")]
    lists = [members(faiss.downcast_index(faiss.try_extract_index_ivf(each))) for each in both]
    # Sums differ in their last bits: a vector between two centroids may move both of them.
    assert (lists[0] == lists[1]).mean() > 0.95
    opened = [AnnIndex(each, 4) for each in both]
    shares = [np.isin(*(each.search(query, 20) for each in opened)).mean() for query in QUERIES]
    assert np.mean(shares) > 0.95

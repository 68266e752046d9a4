from pathlib import Path

import numpy as np
import pytest

import aladin_index.ann.first_stage_build
from aladin_index.ann import coarse_quantiser
from aladin_index.ann.ann_index import AnnIndex
from aladin_index.ann.exact_search import exact_search
from aladin_index.ann.first_stage_build import (
    ann_options,
    build_first_stages,
    check_first_stages,
    factories_to_try,
    fitting_factories,
)
from aladin_index.ann.hub_correction import query_vectors
from aladin_index.format.npy import write_npy
from aladin_index.settings import BuildSettings
from aladin_network.errors import ConfigError
from aladin_network.types import NullProgress
from tests.index.fake_gpu_faiss import FakeGpuFaiss
from tests.index.vectors import unit_vectors

COUNT, DIM = 2000, 16


@pytest.fixture
def generation(tmp_path: Path) -> Path:
    """A folder with the embeddings of 2,000 images and 300 texts."""
    for seed, (target, count) in enumerate((("images", COUNT), ("texts", 300))):
        (tmp_path / target).mkdir()
        vectors = unit_vectors(count, DIM, seed)
        write_npy(tmp_path / target / "embeddings.npy", np.float32, (count, DIM), [vectors])
    return tmp_path


SHAPES = {"images": (COUNT, DIM), "texts": (300, DIM)}


def build(folder: Path, **settings: object) -> dict[str, object]:
    return build_first_stages(
        folder, SHAPES, DIM, BuildSettings(default_candidates=20, **settings), NullProgress()
    )


def test_the_entry_says_how_to_search_and_what_is_found(generation: Path) -> None:
    entry = build(generation, ann="IVF16,PQ16x4fs")["images"]
    assert (entry.asked, entry.factory) == ("IVF16,PQ16x4fs", "IVF16,PQ16x4fs")
    assert (entry.recall_at, entry.recall_queries, entry.recall_wanted) == (20, 200, 0.99)
    ann = AnnIndex.open(generation / "images/ann.faiss", entry.search_width, entry.oversample)
    vectors, queries = unit_vectors(COUNT, DIM), unit_vectors(300, DIM, 1)
    shares = [
        np.isin(exact_search(vectors, query, 20)[0], ann.search(query, 20)).mean()
        for query in queries
    ]
    assert entry.recall >= 0.99
    assert np.mean(shares) == pytest.approx(entry.recall, abs=0.005)


def test_a_graph_finds_the_best_corrected_scores(generation: Path) -> None:
    """Against every corrected cosine, computed apart from the vectors."""
    # As of the captions of Flickr8k: the biases of alignment scores are the larger ones.
    biases = np.random.default_rng(2).normal(0, (0.02, 0.15), (COUNT, 2)).astype(np.float32)
    vectors, texts = unit_vectors(COUNT, DIM), unit_vectors(300, DIM, 1)
    shapes = {"images": (COUNT, DIM + 2), "texts": (300, DIM + 2)}
    for target, stored in (
        ("images", np.hstack([vectors, -biases])),
        ("texts", np.hstack([texts, np.zeros((300, 2), dtype=np.float32)])),
    ):
        write_npy(generation / target / "embeddings.npy", np.float32, shapes[target], [stored])
    settings = BuildSettings(default_candidates=20, ann="HNSW32,Flat")
    entry = build_first_stages(generation, shapes, DIM, settings, NullProgress())["images"]
    assert entry.recall >= 0.99
    ann = AnnIndex.open(generation / "images/ann.faiss", entry.search_width)
    cosines = texts @ vectors.T
    for scores, crossing in ((cosines - biases[:, 0], True), (cosines, False)):
        queries = query_vectors(texts, DIM + 2, float(crossing))
        best = np.argsort(-scores, axis=1)[:, :20]
        found = [ann.search(query, 20) for query in queries]
        assert np.mean([np.isin(*pair) for pair in zip(best, found, strict=True)]) > 0.98
    # Biases that the graph did not have would have cost more than that.
    plain = np.argsort(-cosines, axis=1)[:, :20]
    corrected = np.argsort(biases[:, 0] - cosines, axis=1)[:, :20]
    assert np.mean([np.isin(*pair) for pair in zip(plain, corrected, strict=True)]) < 0.95


@pytest.mark.parametrize(
    ("factories", "kept", "is_enough"),
    [
        (["IVF16,PQ2x4", "IVF16,Flat", "Flat"], "IVF16,Flat", True),
        (["IVF16,PQ2x4", "IVF16,PQ1x4"], "IVF16,PQ2x4", False),  # the best of them
    ],
)
def test_a_factory_that_finds_too_little_gives_way_to_the_next(
    generation: Path,
    monkeypatch: pytest.MonkeyPatch,
    factories: list[str],
    kept: str,
    is_enough: bool,
) -> None:
    module = aladin_index.ann.first_stage_build
    monkeypatch.setattr(module, "_QUERIES", 40)
    monkeypatch.setattr(module, "factories_to_try", lambda *_, **__: factories)
    entry = build(generation)["images"]
    assert (entry.factory, entry.recall >= entry.recall_wanted) == (kept, is_enough)
    opened = AnnIndex.open(generation / "images/ann.faiss", entry.search_width)
    assert opened.keeps_vectors == is_enough


def test_memory_is_shared_by_size_and_impossible_factories_are_refused_beforehand() -> None:
    shapes = {"images": (30_000, DIM), "texts": (10_000, DIM)}
    exact = 40_000 * DIM * 4
    # All of it is enough for exact search, and a quarter less is not.
    check_first_stages(shapes, BuildSettings(memory_budget_bytes=exact, ann_recall=1.0))
    with pytest.raises(ConfigError, match="at least 1,920,000 bytes, got 1,440,000"):
        check_first_stages(
            shapes, BuildSettings(memory_budget_bytes=exact * 3 // 4, ann_recall=1.0)
        )
    with pytest.raises(ConfigError, match="needs at least 301 vectors, there are 300"):
        check_first_stages(SHAPES, BuildSettings(ann="IVF301,Flat"))


MILLION = 1_000_000


def test_the_memory_of_each_kind_worked_by_hand() -> None:
    # 1,024 lists of 256 float32 values each, and of a vector its codes and its 8 bytes of id.
    centroids = 1024 * 256 * 4
    assert [(each.factory, each.memory_bytes) for each in ann_options(MILLION, 256)] == [
        ("IVF1024,PQ256x4fs", centroids + MILLION * (128 + 8)),
        ("IVF1024,PQ128x4fs", centroids + MILLION * (64 + 8)),
        ("IVF1024,PQ64x4fs", centroids + MILLION * (32 + 8)),
        ("IVF1024,SQ8", centroids + MILLION * (256 + 8)),
        ("Flat", MILLION * 1024),
    ]


@pytest.mark.parametrize(
    ("count", "budget", "recall", "factory"),
    [
        (1, None, 0.99, "Flat"),
        (50_000, None, 0.99, "Flat"),
        (50_001, None, 0.99, "IVF256,PQ256x4fs"),
        (MILLION, None, 0.99, "IVF1024,PQ256x4fs"),
        (20 * MILLION, None, 0.99, "IVF4096,PQ256x4fs"),
        (50_000, 51_200_000, 0.99, "Flat"),
        (50_000, 51_199_999, 0.99, "IVF256,PQ256x4fs"),
        (MILLION, 137_048_576, 0.99, "IVF1024,PQ256x4fs"),
        (MILLION, 137_048_575, 0.99, "IVF1024,PQ128x4fs"),
        (MILLION, 41_048_576, 0.9, "IVF1024,PQ64x4fs"),
        (MILLION, None, 0.9995, "IVF1024,SQ8"),
        (MILLION, None, 1.0, "Flat"),
    ],
)
def test_the_fastest_that_fits_and_finds_enough_is_chosen(
    count: int, budget: int | None, recall: float, factory: str
) -> None:
    assert fitting_factories(count, 256, budget, recall)[0] == factory


@pytest.mark.parametrize(
    ("count", "budget", "recall", "factories"),
    [
        # Up to that number, a card compares with all, and the file is the best for processors.
        (4_000_000, None, 0.99, fitting_factories(4_000_000, 256, None, 0.99)),
        (4_000_001, None, 0.99, ["IVF2048,SQ8", "Flat"]),
        (10_000_000, 3_000_000_000, 0.9, ["IVF4096,SQ8"]),
        (10_000_000, None, 1.0, ["Flat"]),
    ],
)
def test_kinds_for_a_card_are_those_that_it_can_search(
    count: int, budget: int | None, recall: float, factories: list[str]
) -> None:
    chosen = factories_to_try("auto", count, 256, budget, recall, on_card=True)
    assert chosen == factories
    assert factories_to_try("PQ16x4fs", count, 256, budget, recall, on_card=True) == ["PQ16x4fs"]


def test_the_device_of_a_build_is_that_of_its_first_stage(
    generation: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    library = FakeGpuFaiss()
    monkeypatch.setattr(coarse_quantiser, "faiss", library)
    for number in ("CARD_FLAT_UP_TO", "EXACT_UP_TO"):
        monkeypatch.setattr(aladin_index.ann.first_stage_build, number, 1000)
    entries = build(generation, device="cuda")
    assert [entries[target].factory for target in SHAPES] == ["IVF32,SQ8", "Flat"]
    assert [index.ntotal for index in library.on_card] == [32]
    assert entries["images"].recall >= 0.99


@pytest.mark.parametrize(
    ("budget", "recall", "factories"),
    [
        (None, 0.99, ["IVF1024,PQ256x4fs", "IVF1024,SQ8", "Flat"]),
        (300_000_000, 0.99, ["IVF1024,PQ256x4fs", "IVF1024,SQ8"]),
        (100_000_000, 0.9, ["IVF1024,PQ128x4fs"]),
    ],
)
def test_each_factory_to_try_finds_more_than_the_one_before(
    budget: int | None, recall: float, factories: list[str]
) -> None:
    assert fitting_factories(MILLION, 256, budget, recall) == factories


@pytest.mark.parametrize(
    ("count", "budget", "recall", "least"),
    [
        (MILLION, 73_048_575, 0.99, "73,048,576"),
        (MILLION, 1_000_000_000, 1.0, "1,024,000,000"),
        (999, 1, 0.5, "1,022,976"),  # too few to train anything on
    ],
)
def test_a_budget_that_nothing_meets_names_the_least(
    count: int, budget: int, recall: float, least: str
) -> None:
    with pytest.raises(ConfigError, match=f"take at least {least} bytes, got {budget:,}"):
        fitting_factories(count, 256, budget, recall)


def test_codes_need_a_size_that_divides() -> None:
    assert [each.factory for each in ann_options(MILLION, 6)] == [
        "IVF1024,PQ6x4fs",
        "IVF1024,SQ8",
        "Flat",
    ]


@pytest.mark.parametrize(
    ("ann", "factories"),
    [
        ("exact", ["Flat"]),
        ("exact-align", ["Flat"]),
        ("OPQ16,IVF64,PQ16", ["OPQ16,IVF64,PQ16"]),
        ("auto", fitting_factories(MILLION, 256, None, 0.99)),
    ],
)
def test_a_description_given_by_hand_is_taken(ann: str, factories: list[str]) -> None:
    assert factories_to_try(ann, MILLION, 256, None, 0.99) == factories

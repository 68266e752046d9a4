from pathlib import Path

import numpy as np
import pytest
import torch
from torch.nn import functional as F

import aladin_index.ann.first_stage_build
from aladin_index.ann.ann_index import AnnIndex
from aladin_index.ann.corrected import query_vectors
from aladin_index.ann.exact_search import exact_search
from aladin_index.ann.first_stage_build import build_first_stages, check_first_stages
from aladin_index.format.npy import write_npy
from aladin_index.settings import BuildSettings
from aladin_network.errors import ConfigError
from aladin_network.types import NullProgress

COUNT, DIM = 2000, 16


def unit_vectors(count: int, seed: int) -> np.ndarray:
    generator = torch.Generator().manual_seed(seed)
    return F.normalize(torch.randn(count, DIM, generator=generator), dim=1).numpy()


@pytest.fixture
def generation(tmp_path: Path) -> Path:
    """A folder with the embeddings of 2,000 images and 300 texts."""
    for seed, (target, count) in enumerate((("images", COUNT), ("texts", 300))):
        (tmp_path / target).mkdir()
        vectors = unit_vectors(count, seed)
        write_npy(tmp_path / target / "embeddings.npy", np.float32, (count, DIM), [vectors])
    return tmp_path


SHAPES = {"images": (COUNT, DIM), "texts": (300, DIM)}


def build(folder: Path, **settings: object) -> dict[str, object]:
    return build_first_stages(
        folder, SHAPES, DIM, BuildSettings(default_candidates=20, **settings), NullProgress()
    )


def try_in_turn(monkeypatch: pytest.MonkeyPatch, factories: list[str]) -> None:
    monkeypatch.setattr(
        aladin_index.ann.first_stage_build, "factories_to_try", lambda *_: factories
    )


def test_the_entry_says_how_to_search_and_what_is_found(generation: Path) -> None:
    entry = build(generation, ann="IVF16,PQ16x4fs")["images"]
    assert (entry.asked, entry.factory) == ("IVF16,PQ16x4fs", "IVF16,PQ16x4fs")
    assert (entry.recall_at, entry.recall_queries, entry.recall_wanted) == (20, 200, 0.99)
    ann = AnnIndex.open(generation / "images/ann.faiss", entry.search_width, entry.oversample)
    vectors, queries = unit_vectors(COUNT, 0), unit_vectors(300, 1)
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
    vectors, texts = unit_vectors(COUNT, 0), unit_vectors(300, 1)
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


def test_what_finds_too_little_gives_way_to_the_next(
    generation: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    try_in_turn(monkeypatch, ["IVF16,PQ2x4", "IVF16,Flat", "Flat"])
    entry = build(generation)["images"]
    assert entry.factory == "IVF16,Flat"
    assert entry.recall >= 0.99
    opened = AnnIndex.open(generation / "images/ann.faiss", entry.search_width)
    assert opened.keeps_vectors


def test_where_none_finds_enough_the_best_is_kept_and_the_entry_says_so(
    generation: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    try_in_turn(monkeypatch, ["IVF16,PQ2x4", "IVF16,PQ1x4"])
    entry = build(generation)["images"]
    assert entry.factory == "IVF16,PQ2x4"
    assert entry.recall < entry.recall_wanted == 0.99
    assert AnnIndex.open(generation / "images/ann.faiss", 1).faiss_index.pq.M == 2


def test_the_memory_is_shared_by_the_size_of_the_vectors() -> None:
    shapes = {"images": (30_000, DIM), "texts": (10_000, DIM)}
    exact = 40_000 * DIM * 4
    # All of it is enough for exact search, and a quarter less is not.
    check_first_stages(shapes, BuildSettings(memory_budget_bytes=exact, ann_recall=1.0))
    with pytest.raises(ConfigError, match="at least 1,920,000 bytes, got 1,440,000"):
        check_first_stages(
            shapes, BuildSettings(memory_budget_bytes=exact * 3 // 4, ann_recall=1.0)
        )


def test_what_cannot_be_built_is_refused_before_any_work() -> None:
    with pytest.raises(ConfigError, match="needs at least 301 vectors, there are 300"):
        check_first_stages(SHAPES, BuildSettings(ann="IVF301,Flat"))


def test_few_vectors_to_train_on_are_no_reason_to_print(
    generation: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    for factory in ("IVF64,PQ16x4fs", "PQ16x4fs", "RR16,IVF64,PQ8x4", "IVF64,SQ8"):
        build(generation, ann=factory)
    assert capfd.readouterr() == ("", "")

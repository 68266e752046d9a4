"""A fitted first stage in an index: searches, changes, generations."""

from __future__ import annotations

import tracemalloc
from collections.abc import Callable
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from aladin_index.changes.writer import ChangesWriter, NewItems
from aladin_index.generations.compact import compact_index
from aladin_index.generations.published import rollback_index
from aladin_index.generations.reader import SearchIndex, open_index
from aladin_index.generations.verify import verify_index
from aladin_index.learned.stage import LearnedFirstStage, LearnedSearch
from aladin_index.learned.weights import Weights
from aladin_index.measure.fit_first_stage import fit_first_stage
from aladin_index.measure.tune import tune_index
from aladin_index.measure.tune_options import TuneOptions
from aladin_index.search.backend import SecondStageQuery
from aladin_index.search.searcher import TwoStageSearcher
from aladin_network.checkpoint import load_checkpoint
from aladin_network.checkpoint_files import Checkpoint
from aladin_network.errors import ConfigError, InputError
from aladin_network.scoring.encoding import Encoding
from aladin_network.scoring.fusion import DirectionFusion
from aladin_network.scoring.token_rows import TokenRows
from tests.index.searching import run_search

MakeItems = Callable[..., NewItems]
PHOTOS, DIM = 120, 24


@pytest.fixture(scope="module")
def checkpoint(tiny_checkpoint: Path) -> Checkpoint:
    return load_checkpoint(tiny_checkpoint)


@pytest.fixture(scope="module")
def fitted(
    tmp_path_factory: pytest.TempPathFactory,
    made_up: MakeItems,
    write_made_up: Callable[..., int],
) -> Path:
    """An index whose embeddings say nothing of the tokens, with a fitted first stage.

    Not to be changed.
    """
    root = tmp_path_factory.mktemp("learned") / "index"
    numbers = [number % 10 for number in range(PHOTOS)]
    photos = made_up([f"photo {number}" for number in range(PHOTOS)], n=numbers)
    texts = made_up([f"text {number}" for number in range(220)], seed=1)
    write_made_up(root, images=photos, texts=texts)
    report = fit_first_stage(root, DIM)
    assert (report.generation, report.texts) == (2, 220)
    return root


@pytest.fixture
def copied(fitted: Path, tmp_path: Path) -> Path:
    import shutil

    return Path(shutil.copytree(fitted, tmp_path / "index"))


def query(seed: int) -> Encoding:
    random = np.random.default_rng(seed)
    embedding = random.standard_normal(16).astype(np.float32)
    words = random.standard_normal((3, 8)).astype(np.float32)
    return Encoding.of_item(
        embedding / np.linalg.norm(embedding),
        words / np.linalg.norm(words, axis=-1, keepdims=True),
    )


def found(index: SearchIndex, seed: int, **options: object) -> list[str]:
    answer = run_search(TwoStageSearcher(index), query(seed), "text", "images", **options)
    return [hit.id for hit in answer.hits]


def kept(index: SearchIndex, candidates: int, **options: object) -> float:
    """Return the share of the exhaustive top 5 of 20 queries that is found."""
    shares: list[float] = []
    for seed in range(20):
        best = found(index, seed, k=5, candidates=10**6, **options)
        hits = found(index, seed, k=5, candidates=candidates, **options)
        shares.append(len(set(best) & set(hits)) / len(best))
    return float(np.mean(shares))


def test_candidates_are_the_best_by_alignment_and_scores_are_the_same(
    fitted: Path, checkpoint: Checkpoint
) -> None:
    with open_index(fitted, checkpoint=checkpoint) as index:
        after = kept(index, 20), kept(index, 20, filter={"n": {"lt": 5}})
        everything = [found(index, seed, k=PHOTOS, candidates=PHOTOS) for seed in range(3)]
        by_cosine = [found(index, seed, k=9, rerank=False) for seed in range(3)]
        unweighted = [found(index, seed, k=9, fusion=0.0) for seed in range(3)]
    with open_index(fitted, generation=1, checkpoint=checkpoint) as index:
        before = kept(index, 20), kept(index, 20, filter={"n": {"lt": 5}})
        assert everything == [found(index, seed, k=PHOTOS, candidates=PHOTOS) for seed in range(3)]
        assert by_cosine == [found(index, seed, k=9, rerank=False) for seed in range(3)]
        assert unweighted == [found(index, seed, k=9, fusion=0.0) for seed in range(3)]
    assert before[0] < 0.3 < 0.9 < after[0]
    assert before[1] < 0.55 < 0.9 < after[1]


def test_a_longer_order_begins_with_a_shorter_one_and_has_every_photo_once(
    copied: Path, checkpoint: Checkpoint, made_up: MakeItems
) -> None:
    asked = query(0)
    embedding = asked.embedding[0]
    second_stage = SecondStageQuery(asked.tokens[0], "text", weight=1.0)
    with (
        open_index(copied, checkpoint=checkpoint) as index,
        closing(ChangesWriter(copied, checkpoint.model_id)) as writer,
    ):
        for step in range(2):
            side = index.side("images")
            whole = side.order(embedding, 500, 10, second_stage)
            assert (whole.candidates, whole.is_learned) == (10, True)
            assert sorted(whole.rows.tolist()) == [
                row for row in range(PHOTOS + 4 * step) if step == 0 or row not in (0, PHOTOS)
            ]
            assert (np.diff(whole.match[:10]) <= 0).all()
            assert (np.diff(whole.match[10:]) <= 0).all()
            cosines = side.embeddings(whole.rows.tolist()) @ embedding
            np.testing.assert_allclose(whole.match, cosines, atol=1e-6)
            for count in (0, 1, 9, 10, 11, 60, PHOTOS):
                part = side.order(embedding, count, 10, second_stage)
                np.testing.assert_array_equal(part.rows, whole.rows[:count])
            if step == 0:
                writer.add("images", made_up(["a", "b", "c", "d"], n=[1, 2, 3, 4]), "error")
                writer.delete("images", ["photo 0", "a"])


def test_what_follows_the_candidates_is_found_without_a_copy_of_the_embeddings(
    fitted: Path, checkpoint: Checkpoint, monkeypatch: pytest.MonkeyPatch
) -> None:
    embeddings = np.random.default_rng(0).standard_normal((100_000, 32)).astype(np.float32)
    asked, head = embeddings[7], np.arange(0, 50, 5)
    monkeypatch.setattr(LearnedFirstStage, "candidates", lambda *_: (head, np.ones(10)))
    with open_index(fitted, checkpoint=checkpoint) as index:
        stage = index.side("images").base.learned
        assert stage is not None
        search = LearnedSearch(asked, asked, wanted=60, candidates=10, selection=None)
        tracemalloc.start()
        rows, cosines = stage.order(search, embeddings, None)
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
    every = embeddings @ asked
    others = np.setdiff1d(np.arange(len(embeddings)), head)
    expected = others[np.argsort(-every[others], kind="stable")][:50]
    np.testing.assert_array_equal(rows[10:], expected)
    np.testing.assert_allclose(cosines, every[rows], rtol=1e-5)
    assert peak < embeddings.nbytes / 2


def test_added_photos_are_fitted_and_a_compaction_keeps_the_fit(
    copied: Path, checkpoint: Checkpoint, made_up: MakeItems
) -> None:
    new = made_up([f"new {number}" for number in range(40)], seed=2, n=[11] * 40)
    with closing(ChangesWriter(copied, checkpoint.model_id)) as writer:
        writer.add("images", new, "error")
        writer.delete("images", [f"photo {number}" for number in range(40)])
    with open_index(copied, checkpoint=checkpoint) as index:
        assert kept(index, 20) > 0.9
        hits = [found(index, seed, k=5, candidates=20) for seed in range(20)]
        assert any(hit.startswith("new") for of_query in hits for hit in of_query)
        side = index.side("images")
        learned, changes = index.images.learned, side.changes
        vectors = learned.added(changes)
        expected = learned.fitted.fit.photo_vectors(TokenRows(new.tokens, new.lengths))
        np.testing.assert_allclose(vectors, expected, atol=0.02)  # tokens are stored halved
    with closing(ChangesWriter(copied, checkpoint.model_id)) as writer:
        writer.add("images", made_up(["late"], seed=3, n=[12]), "error")
    assert compact_index(copied).generation == 3
    verify_index(copied)
    with open_index(copied, checkpoint=checkpoint) as index:
        assert index.manifest.images.learned.dim == DIM
        assert index.images.learned.vectors.shape == (121, DIM)
        np.testing.assert_allclose(index.images.learned.vectors[80:120], vectors, atol=1e-5)
        assert kept(index, 20) > 0.9


def test_tuning_counts_the_candidates_of_the_fitted_stage(
    copied: Path, checkpoint: Checkpoint
) -> None:
    options = TuneOptions(fidelity=0.9, at=5, num_queries=100, max_candidates=PHOTOS)
    report = tune_index(copied, options)
    tuning = report.sides["images"].tuning
    assert tuning.candidates < 40
    assert tuning.fidelity >= 0.9
    learned = report.sides["images"].learned.ann
    # Both stages decide: of the settings that keep enough, the fastest one.
    chosen = min(tuning.settings, key=lambda point: point.search_ms)
    assert chosen.candidates == tuning.candidates
    assert (chosen.search_width, chosen.oversample) == (learned.search_width, learned.oversample)
    given = tune_index(copied, replace(options, ann_recall=0.95)).sides["images"]
    assert given.tuning.settings == []
    assert given.learned.ann.recall_wanted == 0.95
    assert report.sides["texts"].tuning.settings == []
    rollback_index(copied, to=1)
    assert tune_index(copied, options).sides["images"].tuning.candidates > 80
    with open_index(copied, generation=report.generation, checkpoint=checkpoint) as index:
        assert index.manifest.images.learned.ann.recall_at == tuning.candidates
        assert kept(index, tuning.candidates) > 0.8


def test_a_second_fit_replaces_the_first_and_leaves_the_old_generation(
    copied: Path, checkpoint: Checkpoint
) -> None:
    assert fit_first_stage(copied, 8).generation == 3
    verify_index(copied)
    for generation, dim in ((1, None), (2, DIM), (3, 8)):
        with open_index(copied, generation=generation, checkpoint=checkpoint) as index:
            learned = index.images.learned
            assert (None if learned is None else learned.vectors.shape[1]) == dim


def test_what_cannot_be_fitted_is_refused(
    tmp_path: Path, made_up: MakeItems, write_made_up: Callable[..., int]
) -> None:
    write_made_up(tmp_path / "photos", images=made_up(["a", "b"]))
    with pytest.raises(InputError, match=r"the index: expected at least 200 texts .*give --words"):
        fit_first_stage(tmp_path / "photos", 8)
    write_made_up(tmp_path / "texts", texts=made_up(["a", "b"]))
    with pytest.raises(InputError, match="expected photos with tokens"):
        fit_first_stage(tmp_path / "texts", 8)
    with pytest.raises(ConfigError, match="no weight"):
        Weights.of(DirectionFusion(weight=0.0))


@pytest.mark.parametrize("weight", [0.0, 0.25, 0.6, 1.0])
def test_products_of_weighted_parts_differ_as_the_fused_scores(weight: float) -> None:
    fusion = DirectionFusion(
        weight=0.25, align_mean=2.0, align_std=0.5, match_mean=0.1, match_std=0.2
    )
    random = np.random.default_rng(0)
    embeddings, learned = (random.standard_normal((9, dim)).astype(np.float32) for dim in (5, 3))
    embedding, own = (random.standard_normal(dim).astype(np.float32) for dim in (5, 3))
    weights = Weights.of(fusion)
    products = weights.items(embeddings, learned) @ weights.query(
        embedding, own, weight, np.int64(1)
    )
    fused = fusion.combine(learned @ own, embeddings @ embedding, weight)
    if weight == 1:  # the alignment itself, in place of its standardised value
        fused = fused / fusion.align_std
    np.testing.assert_allclose(np.diff(products), np.diff(fused), rtol=1e-4, atol=1e-4)

"""What benchmarks compute, at numbers worked out by hand or by loops."""

from __future__ import annotations

import dataclasses
import math
import signal
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from matplotlib.figure import Figure
from torch.nn import functional as F

from aladin_index.ann import faiss
from aladin_index.ann.ann_index import AnnIndex
from aladin_index.changes.writer import ChangesWriter
from aladin_index.format.manifest import AnnEntry
from aladin_index.generations.reader import open_index
from aladin_index.search.results import Evidence, HitStages, SearchHit, Stage
from aladin_index.settings import BuildSettings
from aladin_training.comparison.claims import Claim
from aladin_training.demo.layout import Scene, SceneObject
from aladin_training.losses import LOSSES
from aladin_training.losses.gradient import GradientObjective
from benchmarks.engines.task import Task, ann_recall, best_of, fastest
from benchmarks.index import hostile_index
from benchmarks.index.live_groups import build_groups, group_ids, make_group, new_group, read_groups
from benchmarks.index.live_updates import Call, Figures, compare
from benchmarks.joint_transformer import (
    Effort,
    compared,
    draw,
    draw_quality,
    time_networks,
    time_searches,
)
from benchmarks.lib.measuring import one_thread, ratio, time_in_turn
from benchmarks.lib.synthetic import SyntheticPhotos, TextQueries, write_synthetic_index
from benchmarks.lib.synthetic_sources import Photos, Source, stand_in_source
from benchmarks.search import rerank, short_queries
from benchmarks.search.searches import raw_parameters
from benchmarks.training import (
    embedding_map,
    goal_weights,
    half_widths,
    objective_memory,
    step_memory,
)
from benchmarks.training.goal_weights import OTHER_NEGATIVE, OTHER_POSITIVE, PAIRS, TRIPLETS

RANDOM = np.random.default_rng(0)


def test_the_fastest_option_with_the_recall_wanted_is_taken() -> None:
    embeddings = RANDOM.standard_normal((300, 8)).astype(np.float32)
    queries = RANDOM.standard_normal((20, 8)).astype(np.float32)
    nearest = [np.argsort(-(embeddings @ query))[:100] for query in queries]
    texts = TextQueries(queries, [], np.zeros(20, dtype=np.int64))
    task = Task(embeddings, np.empty((0, 0, 0)), texts, 20, [], nearest, [], [])
    found = iter(nearest)
    assert ann_recall(task, lambda _: next(found)[:50]) == 0.5

    def find(work: int, query: np.ndarray) -> np.ndarray:
        for _ in range(work):
            scores = task.embeddings @ query
        # With little work, every other one.
        return np.argsort(-scores)[: 100 if work > 2 else 200 : 1 if work > 2 else 2]

    assert fastest(task, [400, 2, 40], find) == 40


def test_late_interaction_of_all_engines_is_that_of_loops() -> None:
    words = RANDOM.standard_normal((5, 16)).astype(np.float32)
    photos = RANDOM.standard_normal((30, 9, 16)).astype(np.float32)
    scores = [sum(max(float(w @ token) for token in photo) for w in words) for photo in photos]
    rows = RANDOM.permutation(30)[:12]
    expected = sorted(rows.tolist(), key=lambda row: -scores[row])[:10]
    assert best_of(words, rows, photos).tolist() == expected
    assert best_of(words, rows[:0], photos).tolist() == []
    pair = torch.from_numpy(words), torch.from_numpy(photos)
    np.testing.assert_allclose(rerank.numpy_matmul(words, photos), scores, rtol=1e-5)
    np.testing.assert_allclose(rerank.torch_matmul(*pair), scores, rtol=1e-5)
    int8 = rerank.torch_int8(*map(rerank.quantise, pair))
    np.testing.assert_allclose(int8, scores, atol=0.6)


@pytest.mark.parametrize(
    ("factory", "width"),
    [("Flat", None), ("IVF7,PQ4x4fs", 5), ("IVF7,SQ8", 3), ("HNSW8,Flat", 120)],
)
def test_faiss_is_asked_as_the_index_asks_it(factory: str, width: int | None) -> None:
    vectors = RANDOM.standard_normal((700, 8)).astype(np.float32)
    raw = faiss.index_factory(8, factory, faiss.METRIC_INNER_PRODUCT)
    raw.train(vectors)
    raw.add(vectors)
    entry = AnnEntry(factory=factory, search_width=width, recall=1, recall_at=1, recall_queries=1)
    parameters = raw_parameters(raw, entry, 100)
    for query in vectors[:20]:
        _, rows = raw.search(query[None], 100, params=parameters)
        assert set(rows[0]) == set(AnnIndex(raw, width).search(query, 100))


def test_times_are_taken_in_turn() -> None:
    calls: list[tuple[str, int]] = []
    runs = {name: lambda turn, name=name: calls.append((name, turn)) for name in ("a", "b")}
    times = time_in_turn(runs, repetitions=2, warm_up=1)
    assert calls == [("a", -1), ("b", -1), ("a", 0), ("b", 0), ("a", 1), ("b", 1)]
    assert {name: len(each) for name, each in times.items()} == {"a": 2, "b": 2}
    assert ratio({"a": np.array([1.0, 3, 9]), "b": np.array([2.0])}, "a", "b") == 1.5


TEXT = "a big black moon left of a star with stripes"
# Where the words are that name something: "big", "black", "moon"; "star", "stripes".
PLACES = {text: TEXT.index(text) for text in ("big", "black", "moon", "star", "stripes")}
LEFT, RIGHT = (0.0, 0.25, 0.5, 0.5), (0.5, 0.25, 1.0, 0.5)
Boxes = dict[str, tuple[float, float, float, float] | None]


def showing(boxes: Boxes) -> SearchHit:
    """A hit whose evidence puts words of `TEXT` on boxes, by default those of their objects."""
    placed: Boxes = {word: RIGHT if word in ("star", "stripes") else LEFT for word in PLACES}
    evidence = [
        Evidence(
            token=word,
            start=PLACES[word],
            end=PLACES[word] + len(word),
            region=0,
            box=box,
            score=0.5,
            share=0.2,
        )
        for word, box in (placed | boxes).items()
    ]
    stage = Stage(rank=1, score=0.5)
    return SearchHit(
        id="s",
        rank=1,
        score=0.5,
        per_word=0.5,
        stages=HitStages(match=stage, align=stage),
        uri=None,
        text=None,
        metadata={},
        evidence=evidence,
    )


def thing(shape: str, colour: str, pattern: str, x: float) -> SceneObject:
    return SceneObject(
        shape=shape, colour=colour, pattern=pattern, size="big", x=x, y=0.5, radius=0.2
    )


def scene_of(moon_x: float, star_x: float) -> Scene:
    moon = thing("moon", "black", "plain", moon_x)
    return Scene(background="snow", objects=(moon, thing("star", "blue", "striped", star_x)))


@pytest.mark.parametrize(
    ("boxes", "misplaced"),
    [
        ({}, []),
        ({"star": LEFT}, ["star"]),  # where it shows the moon alone
        ({"star": (0.3, 0.25, 0.8, 0.5)}, []),  # more of the star than of the moon
        ({"star": (0.2, 0.25, 0.7, 0.5)}, ["star"]),
        ({"moon": (0.0, 0.0, 0.2, 0.2)}, ["moon"]),  # background
        ({"stripes": LEFT, "black": RIGHT}, ["black", "stripes"]),
        ({"big": None}, ["big"]),
    ],
)
def test_a_word_is_placed_if_its_region_shows_most_of_its_object(
    boxes: Boxes, misplaced: list[str]
) -> None:
    words = short_queries.words_on_their_objects(TEXT, showing(boxes), scene_of(0.25, 0.75))
    assert words is not None
    assert [word for word, _ in words] == list(PLACES)
    assert [word for word, is_right in words if not is_right] == misplaced
    wrong = scene_of(0.75, 0.25)  # of which the text is not true
    assert short_queries.words_on_their_objects(TEXT, showing(boxes), wrong) is None


@pytest.fixture
def changed_groups(tmp_path: Path) -> Path:
    """An index of groups 0, 1 and 2, of which 1 was replaced, 2 deleted and 3 added."""
    root = tmp_path / "index"
    build_groups(root, {0: 0, 1: 0, 2: 0})
    with open_index(root) as index, closing(ChangesWriter(root, index.manifest.model.id)) as writer:
        writer.add("images", new_group(1, 5), "replace")
        writer.add("images", new_group(3, 1), "error")
        writer.delete("images", group_ids(2))
    return root


def counted(root: Path, acknowledged: dict[int, int], pending: Call | None) -> tuple[int, ...]:
    """Return what was lost, what was found that nobody asked for, and what was in flight."""
    figures = Figures()
    compare(root, acknowledged, set(), pending, figures)
    return figures.acknowledged_lost, figures.unacknowledged_found, figures.in_flight_applied


def test_changes_that_are_wrong_are_counted(changed_groups: Path) -> None:
    add, delete = Call("add", 3, 1), Call("delete", 2, 9)
    cases: list[tuple[dict[int, int], Call | None, tuple[int, int, int]]] = [
        ({0: 0, 1: 5, 3: 1}, None, (0, 0, 0)),  # as it is
        ({0: 0, 1: 0}, add, (3, 0, 1)),  # a replacement that nobody asked for
        ({0: 0, 1: 5}, add, (0, 0, 1)),  # in flight, and there
        ({0: 0, 1: 5}, None, (0, 3, 0)),  # there, and never asked for
        ({0: 0, 1: 5, 2: 0, 3: 1}, None, (3, 0, 0)),  # not there, and acknowledged
        ({0: 0, 1: 5, 2: 0, 3: 1}, delete, (0, 0, 1)),
    ]
    for acknowledged, pending, expected in cases:
        assert counted(changed_groups, acknowledged, pending) == expected, acknowledged
    # Half a call, and a photo of other bytes.
    with (
        open_index(changed_groups) as index,
        closing(ChangesWriter(changed_groups, index.manifest.model.id)) as writer,
    ):
        writer.delete("images", group_ids(3)[:1])
    (changed_groups / make_group(0, 0).photos[1].path).write_bytes(b"something else")
    assert counted(changed_groups, {0: 0, 1: 5}, add) == (1, 2, 0)
    with open_index(changed_groups) as index:
        assert read_groups(index)["0-1"] is None


def test_damaged_first_stages_are_searched_or_rejected_and_faults_counted(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for kind in ("IVF16,PQ32x4fs", "HNSW16,Flat"):
        told = hostile_index.attack(kind, 4, seed=1)
        assert told["searched"] + told["rejected"] == 4
        assert (told["ended"], told["unforeseen"], told["hung"]) == ({}, 0, 0)

    def fail(*_: object) -> object:
        raise MemoryError

    def end(*_: object) -> object:
        signal.raise_signal(signal.SIGKILL)

    monkeypatch.setattr(hostile_index.AnnIndex, "open", fail)
    assert hostile_index.attack("Flat", 1)["unforeseen"] == 1
    monkeypatch.setattr(hostile_index.AnnIndex, "open", end)
    assert hostile_index.attack("Flat", 2)["ended"] == {"SIGKILL": 2}


def test_speeds_follow_from_the_times_of_an_index_and_networks(tmp_path: Path) -> None:
    figures = compared({"matching": 2.0, "alignment": 10.0, "two_stage": 3.0}, 8.0, 2000.0)
    assert figures["joint_queries_per_s"] == pytest.approx(0.5)
    assert figures["matching_queries_per_s"] == pytest.approx(100)
    assert figures["matching_over_joint"] == pytest.approx(200)
    assert figures["matching_scores_over_joint"] == pytest.approx(1000)
    assert figures["two_stage_over_joint"] == pytest.approx(2000 / 11)
    whole = stand_in_source()
    few = Photos(whole.photos.embeddings[:80], whole.photos.tokens[:80])
    photos = SyntheticPhotos(Source(name="few", photos=few, captions=whole.captions[:80]))
    write_synthetic_index(tmp_path / "index", photos, 120, BuildSettings())
    with one_thread():
        times = time_searches(tmp_path / "index", photos.queries(4, 120, seed=1))
        networks = time_networks(5, Effort(layers=1, width=64, passes=1, searches=4))
    sizes = [
        {"photos": count} | compared(times, networks["encode_ms"], count * networks["pair_ms"])
        for count in (1000, 100)
    ]
    # Ten times the photos are ten times the pairs.
    assert sizes[1]["joint_queries_per_s"] == pytest.approx(10 * sizes[0]["joint_queries_per_s"])
    draw({"layers": 1, "width": 64, "sizes": sizes}, tmp_path / "joint.png")
    assert (tmp_path / "joint.png").read_bytes().startswith(b"\x89PNG")


def test_quality_is_drawn_over_time_beside_a_joint_transformers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    saved: list[Figure] = []
    monkeypatch.setattr(Figure, "savefig", lambda figure, *_, **__: saved.append(figure))
    rsum = {"fitted": [300.0, 310.0, 312.0], "papers": [300.0, 308.0, 305.0]}
    points = [
        {"candidates": candidates, "ms": {"text_to_image": {"median": ms}}}
        | {rule: {"rsum": {"value": values[place]}} for rule, values in rsum.items()}
        for place, (candidates, ms) in enumerate([(1, 0.5), (100, 1.0), (1000, 6.0)])
    ]
    curve = {"items": {"text_to_image": 1000}, "points": points}
    draw_quality({"encode_ms": 40.0, "pair_ms": 60.0}, curve, tmp_path / "quality.png")
    left, right = saved[0].axes
    fitted, papers = left.lines
    assert np.asarray(fitted.get_xdata()).tolist() == [0.5, 1.0, 6.0]
    assert np.asarray(fitted.get_ydata()).tolist() == rsum["fitted"]
    assert np.asarray(papers.get_ydata()).tolist() == rsum["papers"]
    assert [np.asarray(line.get_xdata())[0] for line in right.lines] == [40.0, 60_000.0]
    assert [text.get_text() for text in left.texts] == ["embedding", "100", "all"]


def sigmoid(x: float) -> float:
    return 1 / (1 + math.exp(-x))


@pytest.mark.parametrize(("p", "q"), [(0.9, 0.1), (0.3, 0.6), (0.5, 0.45), (0.2, 0.9)])
def test_weights_are_those_of_the_papers_equations(p: float, q: float) -> None:
    circle = p * (2 - p) - q * q
    triplets = {
        "con": float(0.2 + q - p > 0),
        "nca": sigmoid(10 * (q - p)),
        "cir": sigmoid(-10 * circle),
        "cir, official circle": sigmoid(-10 * (circle - 0.5)),
    }
    plus, minus = math.exp(2 * (p - 0.5)), math.exp(-10 * (q - 0.5))
    pairs = {
        "con": (1, 1),
        "lin": (1 - p, q),
        "sig": (1 / (1 + plus), 1 / (1 + minus)),
        "lin_ms": ((1 - (p - OTHER_POSITIVE)) * (1 - p), (1 + (q - OTHER_NEGATIVE)) * q),
        "sig_ms": (
            1 / (math.exp(2 * (p - OTHER_POSITIVE)) + plus),
            1 / (math.exp(-10 * (q - OTHER_NEGATIVE)) + minus),
        ),
    }
    expected: list[tuple[Any, Any]] = [
        (TRIPLETS, {name: (each, each) for name, each in triplets.items()}),
        (PAIRS, pairs if p < q else {}),  # the pairs that are mined there
    ]
    for objectives, weights in expected:
        assert not weights or weights.keys() == objectives.keys()
        for name, wanted in weights.items():
            found = goal_weights.weights_of_query(objectives[name], p, q)
            assert found == pytest.approx(wanted), name


def test_rows_of_the_weights_are_negatives_and_columns_positives() -> None:
    weights = goal_weights.triplet_weights(GradientObjective("con"), [0.0, 0.5, 1.0])
    assert weights.tolist() == [[1, 0, 0], [1, 1, 0], [1, 1, 1]]


def test_a_map_keeps_captions_near_their_photo(tmp_path: Path) -> None:
    photos, owners = torch.eye(12), torch.arange(24) // 2
    noise = torch.randn(24, 12, generator=torch.Generator().manual_seed(0))
    captions = F.normalize(photos[owners] + 0.02 * noise, dim=1)
    found = embedding_map.map_embeddings(photos, captions, owners, perplexity=3)
    assert (found.photos.shape, found.captions.shape) == ((12, 2), (24, 2))
    assert found.r1 == 100 and found.r1_on_map > 80 and 0 <= found.divergence < 1
    others = embedding_map.map_embeddings(photos, captions, (owners + 1) % 12, perplexity=3)
    assert others.r1 == 0 and others.r1_on_map < 20
    embedding_map.draw([("one", found), ("other", others)], owners, tmp_path / "map.png")
    assert (tmp_path / "map.png").read_bytes().startswith(b"\x89PNG")


def test_what_an_objective_encodes_shows_in_the_memory_of_its_step() -> None:
    tasks = [task for each in objective_memory.OBJECTIVES.values() for task in each.tasks.values()]
    assert {task.loss for task in tasks} == set(LOSSES)
    names = ["mh", "imc-l1", "aoq-triplet", "aoq-quintuplet", "oas-rm", "oss-rm"]
    rows = objective_memory.measure(names, 3, rounds=1, device=torch.device("cpu"))
    memory = {row["objective"]: row["memory_ratio"] for row in rows}
    # Gradients of as many weights count on both sides, so that twice the graph is not twice all.
    assert memory["mh"] == 1 and memory["oss-rm"] > max(1.5, memory["oas-rm"])
    assert memory["aoq-quintuplet"] > memory["aoq-triplet"] > 1.1
    loss = {row["objective"]: row["loss_bytes"] for row in rows}
    # Gradients of 2 x 3 embeddings of 192 numbers.
    assert loss["imc-l1"] > loss["mh"] + 2 * 3 * 192 * 4


def test_bytes_are_counted_while_they_are_kept_and_follow_the_chunk() -> None:
    with step_memory.counting_kept_bytes() as kept:
        squared = torch.ones(256, requires_grad=True).square()
        assert kept.now == 256 * 4
        squared.sum().backward()
        assert kept.now == 0
    assert kept.most == 256 * 4
    whole, chunks = step_memory.measure(6, [2], torch.device("cpu"))
    assert (whole["chunk"], whole["kept_ratio"], whole["time_ratio"]) == (6, 1, 1)
    assert chunks["chunk"] == 2 and chunks["kept_ratio"] < 0.6


def test_half_widths_of_a_claim_are_those_of_students_t() -> None:
    """Seven folds of two runs: 14 runs, whose deviations hold that of the photos as well."""
    claim = Claim("A", "Table 1", "it helps", "ours", "theirs", unknown="made up")
    design = half_widths.Design(folds=7, runs=2)
    (found,) = half_widths.widths_of([claim], design, experiments=60)
    photos, seeds = half_widths.PHOTO_ERROR**2, half_widths.SEED_DEVIATION**2
    error = (photos / 7 + (photos + seeds) / 14) ** 0.5
    assert found.half == pytest.approx(2.16 * error, rel=0.1)  # 13 degrees of freedom
    of_r1 = dataclasses.replace(claim, measure="r1")
    scaled = half_widths.widths_of([of_r1], design, experiments=5)[0].half
    same = half_widths.widths_of([claim], design, experiments=5)[0].half
    assert scaled / same == pytest.approx(half_widths.SCALES["r1"])

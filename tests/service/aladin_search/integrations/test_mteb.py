"""MTEB runs retrieval on checkpoints and indexes, with the recalls of `aladin evaluate`."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from aladin_index.build.builder import build_index
from aladin_network.errors import InputError
from aladin_network.types import NullProgress
from aladin_service.http.app import create_app
from aladin_service.item_sources import image_items, text_items
from aladin_service.measure.evaluate import SystemEvaluation, evaluate_system
from aladin_service.observe.metrics import Metrics
from aladin_service.settings import ServiceSettings
from aladin_service.work.worker import WorkerPlan
from aladin_service.work.workers import ThreadWorkers

pytestmark = [pytest.mark.clients, pytest.mark.filterwarnings("ignore")]

WAYS = {"T2I": "text_to_image", "I2T": "image_to_text"}


@pytest.fixture(scope="module")
def drawn(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Forty pictures with up to three captions each; some have none."""
    folder = tmp_path_factory.mktemp("drawn")
    words = ["red", "blue", "square", "star", "grass", "street", "dog", "circle"]
    unused = iter([*combinations(words, 3), *combinations(words, 4)])
    lines: list[str] = []
    for number in range(40):
        random = np.random.default_rng(number)
        pixels = random.integers(0, 256, (5, 5, 3), dtype=np.uint8)
        Image.fromarray(pixels).resize((48, 40)).save(folder / f"{number}.png")
        # Sets of words that no other caption has: ties are broken differently by mteb.
        captions = [" ".join(sorted(next(unused))) for _ in range(number % 4)]
        line = {"image": f"{number}.png", "captions": captions, "split": "test"}
        lines.append(json.dumps(line))
    (folder / "captions.jsonl").write_text("\n".join(lines))
    return folder / "captions.jsonl"


@pytest.fixture(scope="module")
def drawn_index(tiny_checkpoint: Path, drawn: Path, tmp_path_factory: Any) -> Path:
    out = tmp_path_factory.mktemp("mteb") / "index"
    build_index(tiny_checkpoint, out, image_items(drawn, None), text_items(drawn, None))
    return out


@pytest.fixture(scope="module")
def evaluated(tiny_checkpoint: Path, drawn: Path, drawn_index: Path) -> SystemEvaluation:
    return evaluate_system(tiny_checkpoint, drawn, "test", drawn_index, NullProgress())


def recalls_of(model: Any, drawn: Path) -> Iterator[tuple[str, list[float]]]:
    """Run both tasks by mteb; yield the direction and the hit rates in percent."""
    import mteb

    from aladin_search.integrations.mteb_tasks import drawn_scenes_tasks

    result = mteb.evaluate(
        model,
        drawn_scenes_tasks(drawn.parent),
        cache=None,
        co2_tracker=False,
        show_progress_bar=False,
    )
    for each in result.task_results:
        (scores,) = each.scores["test"]
        way = WAYS[each.task_name.removeprefix("DrawnScenes").removesuffix("Retrieval")]
        yield way, [100 * scores[f"hit_rate_at_{k}"] for k in (1, 5, 10)]


def check(model: Any, drawn: Path, evaluated: SystemEvaluation, system: str) -> None:
    found = dict(recalls_of(model, drawn))
    assert found.keys() == set(WAYS.values())
    for way, recalls in found.items():
        expected = getattr(evaluated.metrics[system], way)[:3]
        assert recalls == pytest.approx(expected, abs=1e-3), (system, way)
        assert recalls[2] > 0


@pytest.mark.parametrize("score", ["fused", "matching", "alignment"])
def test_a_checkpoint_has_the_recalls_of_evaluate(
    tiny_checkpoint: Path, drawn: Path, evaluated: SystemEvaluation, score: Any
) -> None:
    from mteb.models import SearchProtocol

    from aladin_search.integrations.mteb import CheckpointSearch

    model = CheckpointSearch(tiny_checkpoint, score=score)

    assert isinstance(model, SearchProtocol)
    assert model.mteb_model_meta.revision == evaluated.model_id
    check(model, drawn, evaluated, score)


def test_the_encoder_has_the_recalls_of_matching(
    tiny_checkpoint: Path, drawn: Path, evaluated: SystemEvaluation
) -> None:
    from mteb.models import EncoderProtocol

    from aladin_search.integrations.mteb import CheckpointEncoder

    model = CheckpointEncoder(tiny_checkpoint)

    assert isinstance(model, EncoderProtocol)
    check(model, drawn, evaluated, "matching")


def test_an_index_has_the_recalls_of_two_stages(
    drawn: Path, drawn_index: Path, evaluated: SystemEvaluation
) -> None:
    from aladin_search.integrations.mteb import IndexSearch

    check(IndexSearch(drawn_index), drawn, evaluated, "two_stage")


def test_a_service_has_the_recalls_of_two_stages(
    drawn: Path,
    drawn_index: Path,
    evaluated: SystemEvaluation,
    serve_in_thread: Callable[..., AbstractContextManager[str]],
) -> None:
    from aladin_search.integrations.mteb import IndexSearch

    settings, metrics = ServiceSettings(), Metrics()
    plan = WorkerPlan(index=drawn_index, settings=settings)
    workers = ThreadWorkers(plan.make(), settings, metrics)
    with serve_in_thread(create_app(workers, settings, metrics)) as url:
        check(IndexSearch(url=url), drawn, evaluated, "two_stage")


def test_given_documents_are_ordered(tiny_checkpoint: Path, drawn: Path) -> None:
    from aladin_search.integrations.mteb import CheckpointSearch
    from aladin_search.integrations.mteb_tasks import local_tasks

    task, _ = local_tasks(drawn)
    parts = task.dataset["default"]["test"]
    model = CheckpointSearch(tiny_checkpoint)
    model.index(parts["corpus"], task_metadata=task.metadata)
    everything = model.search(parts["queries"], task_metadata=task.metadata, top_k=1000)
    given = {query: ["3.png", "7.png", "5.png"] for query in everything}
    ordered = model.search(parts["queries"], task_metadata=task.metadata, top_k=2, top_ranked=given)

    assert {len(scores) for scores in everything.values()} == {40}
    for query, scores in ordered.items():
        best = sorted(given[query], key=lambda each: -everything[query][each])[:2]
        assert list(scores) == best
        assert all(everything[query][each] == score for each, score in scores.items())


def test_wrong_models_and_data(tiny_checkpoint: Path, index_folder: Path, drawn: Path) -> None:
    import mteb

    from aladin_search.integrations.mteb import CheckpointSearch, IndexSearch
    from aladin_search.integrations.mteb_tasks import flickr8k_tasks, local_tasks

    with pytest.raises(InputError, match="score: expected one of fused, matching, alignment, got"):
        CheckpointSearch(tiny_checkpoint, score="attention")
    with pytest.raises(InputError, match="either an index or the URL"):
        IndexSearch()
    with pytest.raises(InputError, match="hits: expected 1 to 1000, got 0"):
        IndexSearch(index_folder, hits=0)
    with pytest.raises(InputError, match=r"expected one of captions\.jsonl, dataset_flickr8k.json"):
        flickr8k_tasks(drawn.parent.parent)
    assert len(flickr8k_tasks(drawn.parent)) == 2
    with pytest.raises(InputError, match=r"no hit of .* whose ids are those of the documents"):
        mteb.evaluate(IndexSearch(index_folder), local_tasks(drawn), cache=None, co2_tracker=False)

"""The whole path on drawn scenes: data, training, index, and what each way of searching finds."""

from __future__ import annotations

import logging
import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib import resources
from pathlib import Path

import torch
from torch import Tensor

from aladin.checkpoint import load_checkpoint
from aladin.encoding import Encoding
from aladin.errors import IndexNotReadyError
from aladin.progress import Progress
from aladin.scoring import matching_scores
from index.builder import build_index
from index.evaluation import ServedEvaluation
from index.reader import SearchIndex, open_index
from index.searcher import TwoStageSearcher
from index.settings import BuildSettings
from service.evaluation import EvaluatedSplit, evaluate_served, evaluate_split
from service.sources import image_items, text_items
from service.tables import MetricsRow
from training.data import read_records
from training.demo.scenes import draw_data_set
from training.recipe import load_recipe
from training.run import run_recipe

_LOG = logging.getLogger(__name__)

# Of each direction; their median is steady from here on.
_TIMED_QUERIES = 20


@dataclass(frozen=True)
class DemoResult:
    """What the demo leaves.

    Attributes:
        index: folder of the index of the test scenes.
        rows: one a way of searching.
    """

    index: Path
    rows: list[MetricsRow]


def run_demo(
    out: Path, progress: Progress, *, scenes: int = 3000, overrides: Sequence[str] = ()
) -> DemoResult:
    """Draw scenes, train on them, index the test scenes and compare the ways to search them.

    What is complete in `out` is kept: a demo that was stopped goes on where it was.

    Args:
        out: folder of the demo.
        progress: told of everything.
        scenes: number of pictures; one in eight validates and one in eight tests.
        overrides: changes of the recipe, ``key=value``.

    Raises:
        ConfigError: `out` holds a demo of another recipe.
    """
    data = _draw(out / "data", scenes, progress)
    checkpoint = _train(out / "run", data, overrides, progress)
    with _index(out / "index", checkpoint, data, progress) as opened:
        _LOG.info("searching the test scenes in every way")
        split = evaluate_split(load_checkpoint(checkpoint), read_records(data, "test"), progress)
        searcher = TwoStageSearcher(opened)
        served = evaluate_served(searcher, split.records, progress)
        papers = evaluate_served(searcher, split.records, progress, fusion=1.0)
        align = opened.checkpoint.model.alignment_scores
    metrics = split.exhaustive.metrics()
    rows = [
        MetricsRow("matching alone", metrics["matching"], _exhaustive_ms(matching_scores, split)),
        MetricsRow("exhaustive alignment", metrics["alignment"], _exhaustive_ms(align, split)),
        MetricsRow("two-stage, default", served.metrics, _served_ms(served)),
        MetricsRow("two-stage, fusion 1", papers.metrics, _served_ms(papers)),
    ]
    return DemoResult(out / "index", rows)


def _draw(folder: Path, scenes: int, progress: Progress) -> Path:
    data = folder / "captions.jsonl"
    if data.exists():
        return data
    _LOG.info("drawing %d scenes", scenes)
    held_out = max(1, scenes // 8)
    return draw_data_set(
        folder, scenes=scenes, val_scenes=held_out, test_scenes=held_out, progress=progress
    )


def _train(out: Path, data: Path, overrides: Sequence[str], progress: Progress) -> Path:
    _LOG.info("training")
    with resources.as_file(resources.files("training") / "recipes" / "demo.toml") as file:
        recipe = load_recipe(file, [f"data.source={data.absolute()}", *overrides])
    return run_recipe(recipe, out, resume=True, progress=progress).checkpoint


def _index(out: Path, checkpoint: Path, data: Path, progress: Progress) -> SearchIndex:
    try:
        return open_index(out)
    except IndexNotReadyError:
        _LOG.info("indexing the test scenes")
    build_index(
        checkpoint,
        out,
        image_items(data, "test"),
        text_items(data, "test"),
        BuildSettings(),
        progress,
    )
    return open_index(out)


@torch.inference_mode()
def _exhaustive_ms(score: Callable[[Encoding, Encoding], Tensor], split: EvaluatedSplit) -> float:
    """Measure one query against everything, in the middle of both directions' medians."""
    by_text: list[float] = []
    by_image: list[float] = []
    for row in range(min(_TIMED_QUERIES, split.images.size, split.texts.size)):
        one = slice(row, row + 1)
        by_text.append(_ms(score, split.images, split.texts.rows(one)))
        by_image.append(_ms(score, split.images.rows(one), split.texts))
    return (statistics.median(by_text) + statistics.median(by_image)) / 2


def _ms(score: Callable[[Encoding, Encoding], Tensor], images: Encoding, texts: Encoding) -> float:
    started = time.perf_counter()
    score(images, texts)
    return 1000 * (time.perf_counter() - started)


def _served_ms(served: ServedEvaluation) -> float:
    return (served.text_to_image.median_ms + served.image_to_text.median_ms) / 2

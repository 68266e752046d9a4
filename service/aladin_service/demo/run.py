"""The demo: scenes are drawn, a network is trained on them, and its index is measured."""

from __future__ import annotations

import logging
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from aladin_index.building.builder import build_index
from aladin_index.generations.reader import SearchIndex, open_index
from aladin_index.search.options import SearchOptions
from aladin_index.search.searcher import TwoStageSearcher
from aladin_network.calibration.calibration import read_calibration
from aladin_network.checkpoint import load_checkpoint
from aladin_network.checkpoint_files import Checkpoint, read_model_id
from aladin_network.errors import IndexNotReadyError, InputError
from aladin_network.graphs.export import export_where_possible
from aladin_network.model import AladinModel
from aladin_network.types import Progress, Target
from aladin_service.demo import SCENES
from aladin_service.item_sources import image_items, text_items
from aladin_service.measure.calibrate import CalibrateOptions, calibrate_system
from aladin_service.measure.evaluate import evaluate_served
from aladin_service.reports.tables import MetricsRow
from aladin_training.config.recipe import load_recipe
from aladin_training.config.shipped import recipes_folder
from aladin_training.data import Record, read_records
from aladin_training.demo.queries import read_scene, right_scenes
from aladin_training.demo.scenes import draw_data_set
from aladin_training.evaluation import evaluate_checkpoint
from aladin_training.parallel.threads import torch_threads
from aladin_training.stages.run import run_recipe

_LOG = logging.getLogger(__name__)

# Most scenes for validation, and for testing: more of them take time and say nothing new.
_MOST_HELD_OUT = 375
# Number of timed queries per direction; their median is stable at this number.
_TIMED_QUERIES = 50


@dataclass(frozen=True)
class DemoResult:
    """Results of the demo.

    Attributes:
        index: Folder of the index of the test scenes.
        rows: Metrics, one row per search method.
    """

    index: Path
    rows: list[MetricsRow]


def run_demo(
    out: Path, progress: Progress, *, scenes: int = SCENES, overrides: Sequence[str] = ()
) -> DemoResult:
    """Draw scenes, train on them, index the test scenes and compare the search modes.

    Hits have probabilities, which are fitted to the validation scenes. What is complete in `out`
    is kept: a demo that was stopped goes on where it was.
    """
    with torch_threads(1):  # its network is small
        return _run(out, progress, scenes, overrides)


def _run(out: Path, progress: Progress, scenes: int, overrides: Sequence[str]) -> DemoResult:
    data = draw_demo(out, scenes, progress)
    checkpoint = train_demo(out, data, progress, overrides)
    network = load_checkpoint(checkpoint)
    with _index(out / "index", checkpoint, network, data, progress) as opened:
        _LOG.info("evaluating searches of the test scenes")
        rows = _compare(network, opened, read_records(data, "test"), progress)
    return DemoResult(out / "index", rows)


def draw_demo(out: Path, scenes: int, progress: Progress) -> Path:
    """Draw the demo's data set, unless it exists."""
    data = out / "data" / "captions.jsonl"
    if data.exists():
        return data
    _LOG.info("drawing %d scenes", scenes)
    held_out = max(1, min(scenes // 8, _MOST_HELD_OUT))
    return draw_data_set(
        data.parent, scenes=scenes, val_scenes=held_out, test_scenes=held_out, progress=progress
    )


def train_demo(out: Path, data: Path, progress: Progress, overrides: Sequence[str] = ()) -> Path:
    """Train the demo's network, or continue its training; then export its graphs."""
    _LOG.info("training the teacher, then the student")
    recipe = load_recipe(
        recipes_folder() / "demo.toml", [f"data.source={data.absolute()}", *overrides]
    )
    checkpoint = run_recipe(recipe, out / "run", resume=True, progress=progress).checkpoint
    export_where_possible(checkpoint)
    return checkpoint


def calibrate_demo(checkpoint: Path, data: Path, progress: Progress) -> None:
    """Fit probabilities to the validation scenes, unless this was done before.

    Too few scenes are no error: searches of them then have no probabilities.
    """
    if read_calibration(checkpoint, read_model_id(checkpoint)) is not None:
        return
    _LOG.info("fitting probabilities to the validation scenes")
    # Evaluated on other scenes: cross-validation on the same scenes takes ten fits.
    options = CalibrateOptions(report_split="test")
    try:
        calibrate_system(checkpoint, data, options, None, progress, right_answers=_right_by_scenes)
    except InputError as error:
        _LOG.warning("no probabilities: %s", error)


def _right_by_scenes(texts: Sequence[str], records: Sequence[Record]) -> NDArray[np.bool_]:
    return right_scenes(texts, [read_scene(record.metadata) for record in records])


def _index(
    out: Path, checkpoint: Path, network: Checkpoint, data: Path, progress: Progress
) -> SearchIndex:
    try:
        return open_index(out, checkpoint=network)
    except IndexNotReadyError:
        calibrate_demo(checkpoint, data, progress)
    _LOG.info("indexing the test scenes")
    images, texts = image_items(data, "test"), text_items(data, "test")
    build_index(checkpoint, out, images, texts, progress=progress)
    return open_index(out, checkpoint=network)


def _compare(
    network: Checkpoint[AladinModel],
    opened: SearchIndex,
    records: Sequence[Record],
    progress: Progress,
) -> list[MetricsRow]:
    searcher = TwoStageSearcher(opened)
    exhaustive = evaluate_checkpoint(network, records, progress).metrics()
    default = evaluate_served(searcher, records, progress).metrics
    papers = evaluate_served(searcher, records, progress, fusion=1.0).metrics
    everything = sum(len(record.captions) for record in records)
    ways = [
        ("matching alone", exhaustive["matching"], SearchOptions(rerank=False)),
        (
            "exhaustive alignment",
            exhaustive["alignment"],
            SearchOptions(candidates=everything, fusion=1.0),
        ),
        ("two-stage, default", default, SearchOptions()),
        ("two-stage, fusion 1", papers, SearchOptions(fusion=1.0)),
    ]
    return [
        MetricsRow(name, metrics, _median_ms(searcher, records, options))
        for name, metrics, options in ways
    ]


def _median_ms(
    searcher: TwoStageSearcher, records: Sequence[Record], options: SearchOptions
) -> float:
    """Time both stages; the queries are items, since encoding costs the same in all cases."""
    took_ms: list[float] = []
    for record in records[:_TIMED_QUERIES]:
        queries: list[tuple[str, Target]] = [(f"{record.id}#0", "images"), (record.id, "texts")]
        for item_id, target in queries:
            answer = searcher.search(searcher.stored_query(item_id), target, options)
            took_ms.append(answer.took_ms.retrieve + answer.took_ms.rerank)
    return statistics.median(took_ms)


def make_demo(
    out: Path, scenes: int, progress: Progress, *, model: Path | None, split: str | None
) -> tuple[Path, Path]:
    """Draw the demo's data set, and train its network unless there is a model."""
    with torch_threads(1):  # the demo's network is small
        drawn = draw_demo(out, scenes, progress)
        if model is not None:
            return drawn, model
        checkpoint = train_demo(out, drawn, progress)
        if split is not None:
            calibrate_demo(checkpoint, drawn, progress)
        return drawn, checkpoint

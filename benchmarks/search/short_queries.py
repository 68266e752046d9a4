"""Measures short queries on the demo's scenes, of which it is known what they show.

    python -m benchmarks.search.short_queries [--demo aladin-demo] [--json] [--quick]

Three kinds of queries search the index of the demo's test scenes:

right     "a COLOUR SHAPE" for all colours and shapes of the scenes with at least 5 right scenes
foreign   "a COLOUR SHAPE" with a colour or a shape that no scene has
caption   the test scenes' own captions, at most `--captions` of them

For each: the share of queries whose first hit is right (`p_at_1`), the mean share of right ones
among the first five hits (`p_at_5`), both re-ranked and by matching alone; the share of answers
whose probabilities are reliable (`judged`), the share of all answers that report that nothing
matches (`no_match`), and the reasons why answers are not judged (`reasons`). A scene is right if
the words are true of it, see `aladin_training.demo.queries`. `regions` is the share of the right
first hits whose evidence puts the word for the shape on a region that shows more of the named
object than of any other.

`--quick` draws 160 scenes and trains for one epoch: it shows that everything runs, and no quality.
"""

from __future__ import annotations

import argparse
import json
import tempfile
from collections import Counter
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from aladin_index.open import open_backend
from aladin_index.search.options import SearchOptions
from aladin_index.search.results import SearchAnswer, SearchHit
from aladin_index.search.searcher import TwoStageSearcher
from aladin_network.types import NullProgress
from aladin_service.demo import run_demo
from aladin_service.search.encoder import QueryEncoder
from aladin_service.search.job import TextQuery
from aladin_service.settings import QueryLimits
from aladin_training.data import read_records
from aladin_training.demo.layout import Scene, SceneObject
from aladin_training.demo.queries import (
    SceneQuery,
    colour_shape_queries,
    foreign_queries,
    read_scene,
    right_scenes,
)

_LEAST_RIGHT = 5
_PAGE = 5
_QUICK = [f"stage.{stage}.epochs=1" for stage in ("teacher", "words", "student")]
_QUICK_SCENES = 160


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the measurements, and print a table or JSON."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--demo", type=Path, default=Path("aladin-demo"), help="folder of the demo")
    parser.add_argument("--captions", type=int, default=300, help="captions to ask")
    parser.add_argument("--quick", action="store_true", help="train a small demo")
    parser.add_argument("--json", action="store_true", help="print JSON")
    options = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory() as folder:
        demo: Path = options.demo
        if options.quick:
            demo = Path(folder)
            run_demo(demo, NullProgress(), scenes=_QUICK_SCENES, overrides=_QUICK)
        report = measure(demo, options.captions)
    if options.json:
        print(json.dumps(report, indent=2))
    else:
        print_table(report)


def measure(demo: Path, captions: int) -> dict[str, Any]:
    """Return the figures by kind of query.

    Args:
        demo: Folder of a complete demo.
        captions: Number of captions to ask.
    """
    records = read_records(demo / "data" / "captions.jsonl", "test")
    scenes = {record.id: read_scene(record.metadata) for record in records}
    named = list(colour_shape_queries())
    counts = right_scenes(named, list(scenes.values())).sum(axis=1)
    texts = {
        "right": [text for text, count in zip(named, counts, strict=True) if count >= _LEAST_RIGHT],
        "foreign": list(foreign_queries()),
        "caption": [text for record in records for text in record.captions[:1]][:captions],
    }
    with (
        closing(open_backend(demo / "index")) as opened,
        closing(QueryEncoder(QueryLimits())) as encoder,
    ):
        searcher = TwoStageSearcher(opened)

        def search(text: str, *, rerank: bool) -> SearchAnswer:
            query = encoder.encode_one(searcher, TextQuery(text))
            options = SearchOptions(k=_PAGE, rerank=rerank, explain=rerank)
            return searcher.search(query, "images", options)

        return {
            kind: _figures(
                asked,
                [search(text, rerank=True) for text in asked],
                [search(text, rerank=False) for text in asked],
                scenes,
            )
            for kind, asked in texts.items()
        }


def _figures(
    texts: Sequence[str],
    reranked: Sequence[SearchAnswer],
    matched: Sequence[SearchAnswer],
    scenes: dict[str, Scene],
) -> dict[str, Any]:
    if not texts:
        return {"queries": 0}
    figures: dict[str, Any] = {"queries": len(texts)}
    for name, answers in (("reranked", reranked), ("matching", matched)):
        right = _right_hits(texts, answers, scenes)
        figures[name] = {"p_at_1": float(right[:, 0].mean()), "p_at_5": float(right.mean())}
    placed = [
        is_placed
        for text, answer in zip(texts, reranked, strict=True)
        if (is_placed := on_its_object(text, answer.hits[0], scenes)) is not None
    ]
    reasons = Counter(answer.unreliable_because for answer in reranked)
    return figures | {
        "regions": float(np.mean(placed)) if placed else None,
        "judged": float(np.mean([answer.probabilities_reliable is True for answer in reranked])),
        "no_match": float(np.mean([answer.no_match is True for answer in reranked])),
        "reasons": {str(reason): count for reason, count in reasons.items() if reason is not None},
    }


def _right_hits(
    texts: Sequence[str], answers: Sequence[SearchAnswer], scenes: dict[str, Scene]
) -> NDArray[np.bool_]:
    """Return (texts, page), whether each hit is right; a hit that is missing is wrong."""
    right = np.zeros((len(texts), _PAGE), dtype=np.bool_)
    for row, (text, answer) in enumerate(zip(texts, answers, strict=True)):
        query = SceneQuery.read(text)
        for place, hit in enumerate(answer.hits):
            right[row, place] = query is not None and query.holds(scenes[hit.id])
    return right


def on_its_object(text: str, hit: SearchHit, scenes: dict[str, Scene]) -> bool | None:
    """Tell whether the evidence of a hit puts the word for a shape on the object of that shape.

    Args:
        text: Query that names one object.
        hit: Hit with evidence.
        scenes: Scenes by the id of their photo.

    Returns:
        None if the query names another number of objects, or the hit is wrong.
    """
    query, scene = SceneQuery.read(text), scenes[hit.id]
    if query is None or len(query.things) != 1 or not query.holds(scene):
        return None
    shape = query.things[0].get("shape")
    boxes = [each.box for each in hit.evidence or () if each.token == shape]
    if len(boxes) != 1 or boxes[0] is None:
        return None
    most = max(scene.objects, key=lambda thing: _overlap(thing, boxes[0] or (0, 0, 0, 0)))
    return most.shape == shape and _overlap(most, boxes[0]) > 0


def _overlap(thing: SceneObject, box: tuple[float, float, float, float]) -> float:
    """Return the area of the intersection of a box with an object's square."""
    left, top, right, bottom = box
    width = min(right, thing.x + thing.radius) - max(left, thing.x - thing.radius)
    height = min(bottom, thing.y + thing.radius) - max(top, thing.y - thing.radius)
    return max(0.0, width) * max(0.0, height)


def print_table(report: dict[str, Any]) -> None:
    """Print the report as a table in Markdown."""
    columns = ("queries", "P@1", "P@5", "P@1 matching", "P@5 matching", "regions", "judged")
    print(f"| | {' | '.join(columns)} | no match |")
    print(f"| --- |{' ---: |' * (len(columns) + 1)}")
    for kind, each in report.items():
        if not each["queries"]:
            continue
        figures = [
            *(each[name][at] for name in ("reranked", "matching") for at in ("p_at_1", "p_at_5")),
            each["regions"],
            each["judged"],
            each["no_match"],
        ]
        cells = ["" if figure is None else f"{figure:.2f}" for figure in figures]
        print(f"| {kind} | {each['queries']} | {' | '.join(cells)} |")


if __name__ == "__main__":
    main()

"""Measures the demo, of whose scenes it is known what they show, with one seed or several.

    python -m benchmarks.search.short_queries [--demo aladin-demo] [--json] [--quick]
    python -m benchmarks.search.short_queries --demo FOLDER --seeds 3 [--json] [--quick]

With `--seeds`, a demo of each seed is made in FOLDER, with seed 0 as `aladin demo` has it; what is
complete there is kept. The figures are then the least and the greatest of the seeds, with the
demo's own table and the seconds that the processor computed for a demo (`cpu_s`).

Three kinds of queries search the index of the demo's test scenes:

right     "a COLOUR SHAPE" for all colours and shapes of the scenes with at least 5 right scenes
foreign   "a COLOUR SHAPE" with a colour or a shape that no scene has
caption   the test scenes' own captions, at most `--captions` of them

For each: the share of queries whose first hit is right (`p_at_1`), the mean share of right ones
among the first five hits (`p_at_5`), both re-ranked and by matching alone; the share of answers
whose probabilities are reliable (`judged`), the share of all answers that report that nothing
matches (`no_match`), and the reasons why answers are not judged (`reasons`). A scene is right if
the words are true of it, see `aladin_training.demo.queries`. `regions` is about the right first
hits: of the words that name an attribute or a shape, the share whose evidence is a region that
shows more of the named object than of any other.

The README's query (`SHOWCASE`) is asked as well: whether its first hit is right, and which of its
words point elsewhere (`misplaced`).

`--quick` draws 160 scenes and trains for one epoch: it shows that everything runs, and no quality.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from aladin_index.open import open_backend
from aladin_index.search.options import SearchOptions
from aladin_index.search.results import Box, SearchAnswer, SearchHit
from aladin_index.search.searcher import TwoStageSearcher
from aladin_network.types import NullProgress
from aladin_service.demo import SCENES
from aladin_service.demo.run import run_demo
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

SHOWCASE = "a black moon and a blue star"

_LEAST_RIGHT = 5
_PAGE = 5
_QUICK = [f"stage.{stage}.epochs=1" for stage in ("teacher", "words", "student")]
_QUICK_SCENES = 160
_RECALLS = ("R@1", "R@5", "R@10")

Report = dict[str, Any]


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the measurements, and print tables or JSON."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--demo", type=Path, default=Path("aladin-demo"), help="folder of the demo")
    parser.add_argument("--seeds", type=int, help="make so many demos in the folder")
    parser.add_argument("--captions", type=int, default=300, help="captions to ask")
    parser.add_argument("--quick", action="store_true", help="train a small demo")
    parser.add_argument("--json", action="store_true", help="print JSON, a report for each seed")
    options = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory() as folder:
        demo: Path = Path(folder) if options.quick else options.demo
        if options.quick or options.seeds:
            seeds = range(options.seeds or 1)
            reports = [
                _make(demo / f"seed-{seed}", seed, options.captions, quick=options.quick)
                for seed in seeds
            ]
        else:
            reports = [measure(demo, options.captions)]
    if options.json:
        print(json.dumps(reports, indent=2))
    else:
        print_tables(reports)


def _make(demo: Path, seed: int, captions: int, *, quick: bool) -> Report:
    """Run a demo with a seed, unless it is complete, and measure it."""
    begun = time.process_time()
    scenes, overrides = (_QUICK_SCENES, _QUICK) if quick else (SCENES, [])
    rows = run_demo(
        demo, NullProgress(), scenes=scenes, overrides=[f"seed={seed}", *overrides]
    ).rows
    cpu_s = time.process_time() - begun
    searches = {
        row.name: {
            "text to image": dict(zip(_RECALLS, row.metrics.text_to_image[:3], strict=True)),
            "image to text": dict(zip(_RECALLS, row.metrics.image_to_text[:3], strict=True)),
            "rsum": row.metrics.rsum,
            "ms": row.ms_a_query,
        }
        for row in rows
    }
    return {"cpu_s": cpu_s, "searches": searches} | measure(demo, captions)


def measure(demo: Path, captions: int) -> Report:
    """Return the figures by kind of query, and those of the README's query.

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

        figures = {
            kind: _figures(
                asked,
                [search(text, rerank=True) for text in asked],
                [search(text, rerank=False) for text in asked],
                scenes,
            )
            for kind, asked in texts.items()
        }
        first = search(SHOWCASE, rerank=True).hits[0]
        placed = words_on_their_objects(SHOWCASE, first, scenes[first.id])
    misplaced = None if placed is None else [word for word, is_right in placed if not is_right]
    return figures | {"showcase": {"right": placed is not None, "misplaced": misplaced}}


def _figures(
    texts: Sequence[str],
    reranked: Sequence[SearchAnswer],
    matched: Sequence[SearchAnswer],
    scenes: dict[str, Scene],
) -> Report:
    if not texts:
        return {"queries": 0}
    figures: Report = {"queries": len(texts)}
    for name, answers in (("reranked", reranked), ("matching", matched)):
        right = _right_hits(texts, answers, scenes)
        figures[name] = {"p_at_1": float(right[:, 0].mean()), "p_at_5": float(right.mean())}
    placed = [
        is_right
        for text, answer in zip(texts, reranked, strict=True)
        for hit in answer.hits[:1]
        for _, is_right in words_on_their_objects(text, hit, scenes[hit.id]) or ()
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


def words_on_their_objects(
    text: str, hit: SearchHit, scene: Scene
) -> list[tuple[str, bool]] | None:
    """Tell whether the words for attributes and shapes point at the objects that they name.

    Args:
        text: Query.
        hit: Hit with evidence.
        scene: What the hit shows.

    Returns:
        Each such word, with whether its region shows more of its object than of any other; None if
        the text is not true of the scene. If it can mean several objects, those that suit best.
    """
    query = SceneQuery.read(text)
    if query is None or not query.holds(scene):
        return None
    evidence = {each.start: each for each in hit.evidence or ()}
    readings = [
        [
            (text[start : evidence[start].end], _shows(evidence[start].box, meant[thing], scene))
            for start, thing in query.named
        ]
        for meant in query.meant(scene)
    ]
    return max(readings, key=lambda words: sum(is_right for _, is_right in words))


def _shows(box: Box | None, thing: SceneObject, scene: Scene) -> bool:
    """Tell whether a region shows more of an object than of any other."""
    if box is None:
        return False
    seen = {other: _overlap(other, box) for other in scene.objects}
    return seen[thing] > 0 and all(
        seen[thing] > area for other, area in seen.items() if other != thing
    )


def _overlap(thing: SceneObject, box: Box) -> float:
    """Return the area of the intersection of a box with an object's square."""
    left, top, right, bottom = box
    width = min(right, thing.x + thing.radius) - max(left, thing.x - thing.radius)
    height = min(bottom, thing.y + thing.radius) - max(top, thing.y - thing.radius)
    return max(0.0, width) * max(0.0, height)


def print_tables(reports: Sequence[Report]) -> None:
    """Print the figures of one demo or the ranges of several as tables in Markdown."""
    if "searches" in reports[0]:
        columns = [
            (way, recall) for way in ("text to image", "image to text") for recall in _RECALLS
        ]
        print(f"| | {' | '.join(' '.join(each) for each in columns)} | rsum | ms |")
        print(f"| --- |{' ---: |' * (len(columns) + 2)}")
        for name in reports[0]["searches"]:
            rows = [report["searches"][name] for report in reports]
            cells = [_range([row[way][recall] for row in rows], 1) for way, recall in columns]
            cells += [_range([row[key] for row in rows], 1) for key in ("rsum", "ms")]
            print(f"| {name} | {' | '.join(cells)} |")
        print(f"\nseconds of processor time: {_range([each['cpu_s'] for each in reports], 0)}\n")
    columns = ("queries", "P@1", "P@5", "P@1 matching", "P@5 matching", "regions", "judged")
    print(f"| | {' | '.join(columns)} | no match |")
    print(f"| --- |{' ---: |' * (len(columns) + 1)}")
    for kind in ("right", "foreign", "caption"):
        each = [report[kind] for report in reports]
        if not each[0]["queries"]:
            continue
        cells = [
            *(
                _range([report[name][at] for report in each], 2)
                for name in ("reranked", "matching")
                for at in ("p_at_1", "p_at_5")
            ),
            *(
                _range([report[key] for report in each], 2)
                for key in ("regions", "judged", "no_match")
            ),
        ]
        print(f"| {kind} | {each[0]['queries']} | {' | '.join(cells)} |")
    print(f"\n{SHOWCASE!r}:")
    for report in reports:
        right, misplaced = report["showcase"]["right"], report["showcase"]["misplaced"]
        print(f"first hit {'right' if right else 'wrong'}, words that point elsewhere: {misplaced}")


def _range(values: Sequence[float | None], digits: int) -> str:
    """Return the least and the greatest value, or the one that all are; nothing for None."""
    known = [value for value in values if value is not None]
    texts = [f"{value:.{digits}f}" for value in (min(known), max(known))] if known else [""]
    return " to ".join(dict.fromkeys(texts))


if __name__ == "__main__":
    main()

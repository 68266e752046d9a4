"""The benchmark of short queries."""

from __future__ import annotations

import json
from typing import Any

import pytest

from aladin_index.search.results import Evidence, HitStages, SearchHit, Stage
from aladin_training.demo.layout import Scene, SceneObject
from benchmarks.search import short_queries


def test_the_quick_form_prints_every_figure(capsys: pytest.CaptureFixture[str]) -> None:
    short_queries.main(["--quick", "--json", "--captions", "8"])
    report = json.loads(capsys.readouterr().out)
    assert list(report) == ["right", "foreign", "caption"]
    assert report["foreign"]["queries"] == 128
    assert report["foreign"]["reranked"] == {"p_at_1": 0.0, "p_at_5": 0.0}
    assert report["caption"]["queries"] == 8
    for kind in ("foreign", "caption"):
        assert 0 <= report[kind]["no_match"] <= report[kind]["judged"] <= 1


def circle_hit(box: tuple[float, float, float, float], scene_id: str = "s") -> SearchHit:
    """A hit whose evidence puts "circle" on a box."""
    evidence = Evidence(token="circle", start=6, end=12, region=0, box=box, score=0.5, share=1.0)
    stage = Stage(rank=1, score=0.5)
    return SearchHit(
        id=scene_id,
        rank=1,
        score=0.5,
        per_word=0.5,
        stages=HitStages(match=stage, align=stage),
        uri=None,
        text=None,
        metadata={},
        evidence=[evidence],
    )


def test_a_region_is_right_if_it_shows_most_of_the_named_object() -> None:
    def thing(shape: str, colour: str, x: float) -> SceneObject:
        return SceneObject(
            shape=shape, colour=colour, pattern="plain", size="big", x=x, y=0.5, radius=0.2
        )

    objects = (thing("circle", "red", 0.25), thing("star", "blue", 0.75))
    scenes = {"s": Scene(background="snow", objects=objects)}
    place = short_queries.on_its_object
    assert place("a red circle", circle_hit((0.0, 0.25, 0.5, 0.5)), scenes) is True
    assert place("a red circle", circle_hit((0.5, 0.25, 1.0, 0.5)), scenes) is False
    assert place("a red circle", circle_hit((0.0, 0.0, 0.2, 0.2)), scenes) is False
    # A wrong hit has no right region, and two objects have no single one.
    assert place("a blue circle", circle_hit((0.0, 0.25, 0.5, 0.5)), scenes) is None
    assert place("a circle and a star", circle_hit((0.0, 0.25, 0.5, 0.5)), scenes) is None


def test_a_table_has_a_line_for_each_kind(capsys: pytest.CaptureFixture[str]) -> None:
    figures: dict[str, Any] = {
        "queries": 63,
        "reranked": {"p_at_1": 0.9, "p_at_5": 0.8},
        "matching": {"p_at_1": 0.5, "p_at_5": 0.4},
        "regions": None,
        "judged": 1.0,
        "no_match": 0.04,
        "reasons": {},
    }
    short_queries.print_table({"right": figures, "foreign": {"queries": 0}})
    lines = capsys.readouterr().out.splitlines()
    assert lines[2:] == ["| right | 63 | 0.90 | 0.80 | 0.50 | 0.40 |  | 1.00 | 0.04 |"]

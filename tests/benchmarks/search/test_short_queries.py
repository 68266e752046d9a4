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
    (report,) = json.loads(capsys.readouterr().out)
    assert report["foreign"]["queries"] == 128
    assert report["foreign"]["reranked"] == {"p_at_1": 0.0, "p_at_5": 0.0}
    assert report["caption"]["queries"] == 8
    for kind in ("foreign", "caption"):
        assert 0 <= report[kind]["no_match"] <= report[kind]["judged"] <= 1
    assert report["cpu_s"] > 0
    recalls = report["searches"]["two-stage, default"]["text to image"]
    assert 0 < recalls["R@1"] <= recalls["R@5"] <= recalls["R@10"] <= 100
    assert set(report["showcase"]) == {"right", "misplaced"}


TEXT = "a big black moon left of a star with stripes"
# Where the words are that name something: "big", "black", "moon"; "star", "stripes".
PLACES = {text: TEXT.index(text) for text in ("big", "black", "moon", "star", "stripes")}
LEFT, RIGHT = (0.0, 0.25, 0.5, 0.5), (0.5, 0.25, 1.0, 0.5)


def showing(**boxes: tuple[float, float, float, float] | None) -> SearchHit:
    """A hit whose evidence puts words of `TEXT` on boxes, by default those of their objects."""
    placed = {word: RIGHT if word in ("star", "stripes") else LEFT for word in PLACES} | boxes
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
        evidence=[
            Evidence(
                token=word,
                start=PLACES[word],
                end=PLACES[word] + len(word),
                region=0,
                box=box,
                score=0.5,
                share=0.2,
            )
            for word, box in placed.items()
        ],
    )


def thing(shape: str, colour: str, pattern: str, x: float) -> SceneObject:
    return SceneObject(
        shape=shape, colour=colour, pattern=pattern, size="big", x=x, y=0.5, radius=0.2
    )


SCENE = Scene(
    background="snow",
    objects=(thing("moon", "black", "plain", 0.25), thing("star", "blue", "striped", 0.75)),
)


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
def test_a_word_is_placed_if_its_region_shows_most_of_the_object_that_it_names(
    boxes: dict[str, tuple[float, float, float, float] | None], misplaced: list[str]
) -> None:
    words = short_queries.words_on_their_objects(TEXT, showing(**boxes), SCENE)
    assert words is not None
    assert [word for word, _ in words] == list(PLACES)
    assert [word for word, is_right in words if not is_right] == misplaced


def test_words_of_a_wrong_hit_are_not_judged() -> None:
    exchanged = Scene(background="snow", objects=(SCENE.objects[1], SCENE.objects[0]))
    assert short_queries.words_on_their_objects(TEXT, showing(), exchanged) is not None
    mirrored = (thing("moon", "black", "plain", 0.75), thing("star", "blue", "striped", 0.25))
    wrong = Scene(background="snow", objects=mirrored)
    assert short_queries.words_on_their_objects(TEXT, showing(), wrong) is None


def report_of(no_match: float, rsum: float, misplaced: list[str] | None) -> dict[str, Any]:
    figures = {
        "queries": 63,
        "reranked": {"p_at_1": 0.9, "p_at_5": 0.8},
        "matching": {"p_at_1": 0.5, "p_at_5": 0.4},
        "regions": None,
        "judged": 1.0,
        "no_match": no_match,
        "reasons": {},
    }
    recalls = {"R@1": 50.0, "R@5": 90.0, "R@10": 100.0}
    ways = {"text to image": recalls, "image to text": recalls}
    return {
        "cpu_s": 400.2,
        "searches": {"two-stage": ways | {"rsum": rsum, "ms": 0.5}},
        "right": figures,
        "foreign": {"queries": 0},
        "caption": {"queries": 0},
        "showcase": {"right": misplaced is not None, "misplaced": misplaced},
    }


def test_tables_show_the_range_of_several_seeds(capsys: pytest.CaptureFixture[str]) -> None:
    reports = [
        report_of(0.04, 500.0, []),
        report_of(0.02, 512.34, None),
        report_of(0.03, 505.0, ["star"]),
    ]
    short_queries.print_tables(reports)
    lines = capsys.readouterr().out.splitlines()
    recalls = "50.0 | 90.0 | 100.0"
    assert lines[2] == f"| two-stage | {recalls} | {recalls} | 500.0 to 512.3 | 0.5 |"
    assert lines[4] == "seconds of processor time: 400"
    assert lines[8] == "| right | 63 | 0.90 | 0.80 | 0.50 | 0.40 |  | 1.00 | 0.02 to 0.04 |"
    assert [line.partition(", ")[0] for line in lines[-3:]] == [
        "first hit right",
        "first hit wrong",
        "first hit right",
    ]
    assert lines[-1].endswith("['star']")

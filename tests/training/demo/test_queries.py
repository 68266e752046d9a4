"""Queries of drawn scenes."""

from __future__ import annotations

import dataclasses
from random import Random

import pytest

from aladin_training.demo.captions import write_captions
from aladin_training.demo.layout import COLOURS, SHAPES, Scene, SceneObject, deal_group
from aladin_training.demo.queries import (
    SceneQuery,
    colour_shape_queries,
    foreign_queries,
    read_scene,
    right_scenes,
)


def thing(shape: str, colour: str, x: float, pattern: str = "plain") -> SceneObject:
    return SceneObject(
        shape=shape, colour=colour, pattern=pattern, size="big", x=x, y=0.5, radius=0.2
    )


SCENE = Scene(
    background="snow",
    objects=(thing("circle", "red", 0.2), thing("star", "blue", 0.8, "striped")),
)


@pytest.mark.parametrize(
    ("text", "holds"),
    [
        ("a red circle", True),
        ("Red circle.", True),
        ("circle", True),
        ("red", True),
        ("a large plain red circle", True),
        ("a blue star with stripes", True),
        ("stripes", True),
        ("a red circle to the left of a striped star", True),
        ("a red circle and a blue star in winter", True),
        ("the snow", True),
        ("a blue circle", False),
        ("a small circle", False),
        ("a red circle with stripes", False),
        ("a red circle to the right of a blue star", False),
        ("a circle and a circle", False),
        ("a red circle on the beach", False),
        ("a brown circle", False),
        ("a red hexagon", False),
    ],
)
def test_a_query_holds_if_all_its_words_are_true(text: str, holds: bool) -> None:
    assert right_scenes([text], [SCENE]).tolist() == [[holds]]


def test_every_caption_holds_for_its_scene_and_not_for_its_look_alikes() -> None:
    random = Random(5)
    for _ in range(20):
        group = deal_group(random, 3)
        for place, scene in enumerate(group):
            others = group[:place] + group[place + 1 :]
            captions = write_captions(random, scene, others, 5)
            for caption in captions or ():
                query = SceneQuery.read(caption)
                assert query is not None
                assert query.holds(scene)
                assert not any(query.holds(other) for other in others)


def test_scenes_are_read_from_metadata() -> None:
    assert read_scene({"scene": dataclasses.asdict(SCENE)}) == SCENE


def test_foreign_queries_have_one_word_that_no_scene_has() -> None:
    known = list(colour_shape_queries())
    assert len(known) == len(COLOURS) * len(SHAPES)
    assert all(SceneQuery.read(text) is not None for text in known)
    foreign = list(foreign_queries())
    assert not set(foreign) & set(known)
    assert all(SceneQuery.read(text) is None for text in foreign)
    assert "an orange hexagon" in foreign


def test_words_that_name_something_know_their_thing() -> None:
    text = "Here we see a small red circle to the left of a star with a checker pattern at night"
    query = SceneQuery.read(text)
    assert query is not None
    words = [(text[start:].split()[0], thing) for start, thing in query.named]
    assert words == [
        ("small", 0),
        ("red", 0),
        ("circle", 0),
        ("star", 1),
        ("checker", 1),
        ("pattern", 1),
    ]


def test_a_query_means_every_order_of_objects_that_it_is_true_of() -> None:
    query = SceneQuery.read("something red")
    assert query is None  # "something" is no word of the scenes
    plain, striped = SCENE.objects
    asked = {"a big circle": [(plain,)], "big": [(plain,), (striped,)], "a small star": []}
    for text, meant in asked.items():
        query = SceneQuery.read(text)
        assert query is not None
        assert list(query.meant(SCENE)) == meant

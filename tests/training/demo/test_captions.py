"""Captions and queries are true of their scenes alone; what their words mean."""

from __future__ import annotations

import dataclasses
import re
from random import Random

import numpy as np

from aladin_training.demo.captions import write_captions
from aladin_training.demo.layout import COLOURS, SHAPES, Scene, SceneObject, deal_group
from aladin_training.demo.queries import (
    SceneQuery,
    colour_shape_queries,
    foreign_queries,
    read_scene,
    right_scenes,
)


def thing(shape: str, colour: str, x: float, y: float, pattern: str = "plain") -> SceneObject:
    return SceneObject(
        shape=shape, colour=colour, pattern=pattern, size="big", x=x, y=y, radius=0.2
    )


def test_captions_are_true_of_their_scene_and_of_no_look_alike() -> None:
    random = Random(1)
    written: list[str] = []
    for _ in range(60):
        group = deal_group(random, 4)
        for number, scene in enumerate(group):
            look_alikes = group[:number] + group[number + 1 :]
            captions = write_captions(random, scene, look_alikes, 5)
            if captions is None:
                continue
            assert len(set(captions)) == 5
            written += captions
            for caption in captions:
                query = SceneQuery.read(caption)
                assert query is not None and query.holds(scene), caption
                assert not any(map(query.holds, look_alikes)), caption
    assert len(written) > 600  # few groups deal the same hand twice
    text = " . ".join(written)
    # Only who has which colour tells these two apart, so that no caption leaves both out.
    first, second = (
        Scene(
            background="sea",
            objects=(thing("circle", one, 0.5, 0.3), thing("square", other, 0.5, 0.7)),
        )
        for one, other in (("red", "blue"), ("blue", "red"))
    )
    captions = write_captions(random, first, [second], 40)
    assert captions is not None
    assert all({"red", "blue"} & set(caption.split()) for caption in captions)
    assert write_captions(random, first, [first], 1) is None
    assert re.search(r"\ban orange", text)
    assert not re.search(r"\ba (?=[aeiou])|\ban (?=[^aeiou])", text)


SCENE = Scene(
    background="snow",
    objects=(thing("circle", "red", 0.2, 0.5), thing("star", "blue", 0.8, 0.5, "striped")),
)


# A circle above a square, and left of it.
TWO = (thing("circle", "red", 0.3, 0.3, "dotted"), thing("square", "blue", 0.7, 0.7, "checkered"))
TRUE = """the circle over the square/the circle on top of the square/the circle above the square
the square under the circle/the square beneath the circle/the square below the circle
the circle left of the square/the square to the right of the circle/a huge circle/a large circle
a spotted circle/a circle with dots/a square with a checker pattern/a checkered square
Red circle./circle/red/dots/a red circle and a blue square/the waves/a large dotted red circle"""
FALSE = """the square over the circle/the square on top of the circle/the square above the circle
the circle under the square/the circle beneath the square/the circle below the square
the square left of the circle/the circle to the right of the square/a tiny circle/a little circle
a striped circle/a square with dots/a circle with a checker pattern/a plain square
a blue circle/a circle and a circle/a red circle on the beach/a brown circle/a red hexagon"""
PLACES = {
    **{"at the beach": "beach", "among the trees": "forest", "in the grass": "meadow"},
    **{"under the stars": "night", "on the waves": "sea", "in winter": "snow"},
    **{"in the evening": "sunset", "on the bricks": "wall"},
}


def test_every_word_means_what_it_says() -> None:
    scene = Scene(background="sea", objects=TWO)
    for texts, holds in ((TRUE, True), (FALSE, False)):
        each = re.split("[/\n]", texts)
        assert dict(zip(each, right_scenes(each, [scene])[:, 0], strict=True)) == dict.fromkeys(
            each, holds
        )
    scenes = [Scene(background=each, objects=TWO) for each in PLACES.values()]
    texts = [f"a circle {place}" for place in PLACES]
    assert right_scenes(texts, scenes).tolist() == np.eye(len(PLACES), dtype=bool).tolist()


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
    assert read_scene({"scene": dataclasses.asdict(SCENE)}) == SCENE
    query = SceneQuery.read("something red")
    assert query is None  # "something" is no word of the scenes
    plain, striped = SCENE.objects
    asked = {"a big circle": [(plain,)], "big": [(plain,), (striped,)], "a small star": []}
    for text, meant in asked.items():
        query = SceneQuery.read(text)
        assert query is not None
        assert list(query.meant(SCENE)) == meant

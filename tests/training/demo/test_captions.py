"""Captions and queries are true of their scenes alone: checked by reading the English back."""

from __future__ import annotations

import dataclasses
import itertools
import re
from functools import partial
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

SIZES = {"small": "small", "little": "small", "tiny": "small"} | {
    "big": "big", "large": "big", "huge": "big"
}  # fmt: skip
PATTERNS = {
    "plain": "plain",
    "striped": "striped",
    "stripes": "striped",
    "dotted": "dotted",
    "spotted": "dotted",
    "dots": "dotted",
    "checkered": "checkered",
    "checker": "checkered",
}
RELATIONS = {
    "above": "above", "over": "above", "top": "above",
    "below": "below", "under": "below", "beneath": "below",
    "left": "left", "right": "right",
}  # fmt: skip
BACKGROUNDS = {
    "beach": "beach", "forest": "forest", "trees": "forest", "meadow": "meadow", "grass": "meadow",
    "night": "night", "stars": "night", "sea": "sea", "waves": "sea", "snow": "snow",
    "winter": "snow", "sunset": "sunset", "evening": "sunset", "wall": "wall", "bricks": "wall",
}  # fmt: skip


def is_true(caption: str, scene: Scene) -> bool:
    """Read a caption word by word, without the code that wrote it, and look for what it says."""
    words = caption.replace("under the stars", "at night").split()
    background = next((BACKGROUNDS[word] for word in words if word in BACKGROUNDS), None)
    if background not in (None, scene.background):
        return False
    mentions: list[dict[str, str]] = []
    relation = None
    current: dict[str, str] = {}
    for word in words:
        if word in SIZES:
            current["size"] = SIZES[word]
        elif word in COLOURS:
            current["colour"] = word
        elif word in PATTERNS and word in ("stripes", "dots", "checker"):
            mentions[-1]["pattern"] = PATTERNS[word]  # "a red star with dots"
        elif word in PATTERNS:
            current["pattern"] = PATTERNS[word]
        elif word in RELATIONS:
            relation = RELATIONS[word]
        elif word in SHAPES:
            mentions.append(current | {"shape": word})
            current = {}
    assert mentions and not current, caption
    for things in itertools.permutations(scene.objects, len(mentions)):
        fits = all(
            getattr(thing, name) == value
            for thing, mention in zip(things, mentions, strict=True)
            for name, value in mention.items()
        )
        if fits and (relation is None or is_placed(things[0], relation, things[1])):
            return True
    return False


def is_placed(first: SceneObject, relation: str, second: SceneObject) -> bool:
    return {
        "above": first.y < second.y,
        "below": first.y > second.y,
        "left": first.x < second.x,
        "right": first.x > second.x,
    }[relation]


def thing(shape: str, colour: str, x: float, y: float, pattern: str = "plain") -> SceneObject:
    return SceneObject(
        shape=shape, colour=colour, pattern=pattern, size="big", x=x, y=y, radius=0.2
    )


RED_ABOVE_BLUE = Scene(
    background="sea",
    objects=(thing("circle", "red", 0.5, 0.3), thing("square", "blue", 0.5, 0.7, "striped")),
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
                assert query is not None
                assert is_true(caption, scene), caption
                assert query.holds(scene)
                assert not any(map(partial(is_true, caption), look_alikes)), caption
                assert not any(map(query.holds, look_alikes))
    assert len(written) > 600  # few groups deal the same hand twice
    text = " . ".join(written)
    assert re.search(r"\ban orange", text)
    assert not re.search(r"\ba (?=[aeiou])|\ban (?=[^aeiou])", text)


def test_a_bag_of_words_fits_the_look_alike_as_well() -> None:
    swapped = Scene(
        background="sea",
        objects=(thing("circle", "blue", 0.5, 0.3), thing("square", "red", 0.5, 0.7, "striped")),
    )
    captions = write_captions(Random(0), RED_ABOVE_BLUE, [swapped], 40)
    assert captions is not None
    facts = {"red", "blue", "circle", "square", "striped", "stripes", "plain"}
    for caption in captions:
        said = facts & set(re.findall(r"\w+", caption))
        assert {"red", "blue"} & said  # only who has which colour tells the two apart
        assert is_true(caption, RED_ABOVE_BLUE)
        assert not is_true(caption, swapped)


def test_identical_scenes_leave_nothing_to_say() -> None:
    assert write_captions(Random(0), RED_ABOVE_BLUE, [RED_ABOVE_BLUE], 1) is None


SCENE = Scene(
    background="snow",
    objects=(thing("circle", "red", 0.2, 0.5), thing("star", "blue", 0.8, 0.5, "striped")),
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

"""Captions are true of their scene alone: checked by reading the English back."""

from __future__ import annotations

import itertools
import re
from random import Random

import pytest

from aladin_training.demo.captions import Statement, write_captions
from aladin_training.demo.layout import COLOURS, SHAPES, Scene, SceneObject, deal_group

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


def statement(
    *things: dict[str, str], relation: str | None = None, background: str | None = None
) -> Statement:
    return Statement(things=things, relation=relation, background=background)


def mention(shape: str, **attributes: str) -> dict[str, str]:
    return {"shape": shape, **attributes}


@pytest.mark.parametrize(
    ("said", "holds"),
    [
        (statement(mention("circle", colour="red"), mention("square", colour="blue")), True),
        (statement(mention("circle", colour="blue"), mention("square", colour="red")), False),
        (statement(mention("circle"), mention("square", pattern="striped")), True),
        (statement(mention("circle", pattern="striped"), mention("square")), False),
        (statement(mention("circle"), mention("square"), relation="above"), True),
        (statement(mention("square"), mention("circle"), relation="above"), False),
        (statement(mention("square"), mention("circle"), relation="below"), True),
        (statement(mention("circle"), background="sea"), True),
        (statement(mention("circle"), background="snow"), False),
        (statement(mention("star")), False),
    ],
)
def test_a_statement_holds_of_a_red_circle_above_a_striped_blue_square(
    said: Statement, holds: bool
) -> None:
    assert said.holds(RED_ABOVE_BLUE) is holds


def test_captions_are_true_of_their_scene_and_of_no_look_alike() -> None:
    random = Random(1)
    written = 0
    for _ in range(60):
        group = deal_group(random, 4)
        for number, scene in enumerate(group):
            look_alikes = group[:number] + group[number + 1 :]
            captions = write_captions(random, scene, look_alikes, 5)
            if captions is None:
                continue
            assert len(set(captions)) == 5
            written += 1
            for caption in captions:
                assert is_true(caption, scene), caption
                assert not any(is_true(caption, other) for other in look_alikes), caption
    assert written > 120  # few groups deal the same hand twice


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


def test_articles_agree_with_the_next_word() -> None:
    random = Random(2)
    text = ""
    for _ in range(40):
        scene = deal_group(random, 1)[0]
        text += " . ".join(write_captions(random, scene, [], 5) or []) + " . "
    assert re.search(r"\ban orange", text)
    assert not re.search(r"\ba (?=[aeiou])|\ban (?=[^aeiou])", text)

"""Captions that are true of one scene and of none of the similar scenes of its group."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import permutations
from random import Random

from aladin_training.demo.layout import Scene, SceneObject

# Words for each meaning; a caption picks one.
SIZE_WORDS = {"small": ("small", "little", "tiny"), "big": ("big", "large", "huge")}
PATTERN_WORDS = {
    "plain": ("plain",),
    "striped": ("striped",),
    "dotted": ("dotted", "spotted"),
    "checkered": ("checkered",),
}
PATTERN_TAILS = {
    "striped": "with stripes",
    "dotted": "with dots",
    "checkered": "with a checker pattern",
}
RELATION_WORDS = {
    "above": ("above", "over", "on top of"),
    "below": ("below", "under", "beneath"),
    "left": ("left of", "to the left of"),
    "right": ("right of", "to the right of"),
}
BACKGROUND_WORDS = {
    "beach": ("on the beach", "at the beach"),
    "forest": ("in the forest", "among the trees"),
    "meadow": ("on a meadow", "in the grass"),
    "night": ("at night", "under the stars"),
    "sea": ("at sea", "on the waves"),
    "snow": ("in the snow", "in winter"),
    "sunset": ("at sunset", "in the evening"),
    "wall": ("in front of a wall", "on the bricks"),
}
_OPENINGS = ("", "", "", "there is ", "a picture of ", "here we see ")

# A stated relation is clearly visible; a look-alike must not have it even vaguely.
_CLEAR = 0.2


@dataclass(frozen=True, kw_only=True)
class Statement:
    """The meaning of a text about scenes; what is not mentioned is missing, or None.

    The relation is the position of the first object relative to the second.
    """

    things: tuple[Mapping[str, str], ...]
    relation: str | None = None
    background: str | None = None

    def holds(self, scene: Scene) -> bool:
        """Tell whether the statement is true of a scene, even vaguely."""
        return next(self.meant(scene), None) is not None

    def meant(self, scene: Scene) -> Iterator[tuple[SceneObject, ...]]:
        """Yield the objects of a scene that the statement can mean, in the order of its things."""
        if self.background not in (None, scene.background):
            return
        for chosen in permutations(scene.objects, len(self.things)):
            if all(map(_fits, self.things, chosen)) and (
                self.relation is None
                or len(chosen) < 2
                or lies(chosen[0], self.relation, chosen[1])
            ):
                yield chosen


def _fits(attributes: Mapping[str, str], thing: SceneObject) -> bool:
    return all(getattr(thing, name) == value for name, value in attributes.items())


def write_captions(
    random: Random, scene: Scene, look_alikes: Sequence[Scene], count: int
) -> list[str] | None:
    """Write captions, all different and true of no look-alike; None if too little is left."""
    captions: list[str] = []
    for _ in range(40 * count):
        statement = _observe(random, scene)
        if any(statement.holds(other) for other in look_alikes):
            continue
        caption = _phrase(random, statement)
        if caption not in captions:
            captions.append(caption)
            if len(captions) == count:
                return captions
    return None


def _observe(random: Random, scene: Scene) -> Statement:
    """Choose a true and clearly visible statement."""
    number = random.choices((1, 2, 3), weights=(1, 8, 6))[0]
    things = random.sample(scene.objects, min(number, len(scene.objects)))
    relation = None
    if len(things) > 1 and random.random() < 0.75:
        # The larger offset wins: an object mostly to the left is not called above.
        offset = _offset(things[0], things[1])
        widest = max(offset, key=lambda each: offset[each])
        relation = widest if offset[widest] >= _CLEAR else None
    return Statement(
        things=tuple(_mention(random, thing) for thing in things),
        relation=relation,
        background=scene.background if random.random() < 0.3 else None,
    )


def _mention(random: Random, thing: SceneObject) -> dict[str, str]:
    pattern_rate = 0.25 if thing.pattern == "plain" else 0.75
    rates = {"colour": 0.9, "pattern": pattern_rate, "size": 0.5}
    said = {name: getattr(thing, name) for name, rate in rates.items() if random.random() < rate}
    return {"shape": thing.shape, **said}


def lies(first: SceneObject, relation: str, second: SceneObject) -> bool:
    """Tell whether an object lies above, below, left or right of another, even slightly."""
    return _offset(first, second)[relation] > 0


def _offset(first: SceneObject, second: SceneObject) -> dict[str, float]:
    """Return the offset of the first object from the second in each direction."""
    right, below = first.x - second.x, first.y - second.y
    return {"above": -below, "below": below, "left": -right, "right": right}


def _phrase(random: Random, statement: Statement) -> str:
    phrases = [_noun_phrase(random, thing) for thing in statement.things]
    if statement.relation is not None:
        relation = random.choice(RELATION_WORDS[statement.relation])
        phrases[:2] = [f"{phrases[0]} {relation} {phrases[1]}"]
    text = random.choice(_OPENINGS) + " and ".join(phrases)
    if statement.background is not None:
        text += " " + random.choice(BACKGROUND_WORDS[statement.background])
    return text


def _noun_phrase(random: Random, thing: Mapping[str, str]) -> str:
    words: list[str] = []
    tail, pattern = "", thing.get("pattern")
    if pattern in PATTERN_TAILS and random.random() < 0.25:
        tail = " " + PATTERN_TAILS[pattern]
    elif pattern is not None:
        words.append(random.choice(PATTERN_WORDS[pattern]))
    if "colour" in thing:
        words.insert(random.randint(0, len(words)), thing["colour"])
    if "size" in thing:
        words.insert(0, random.choice(SIZE_WORDS[thing["size"]]))
    words.append(thing["shape"])
    return f"{article(words[0])} {' '.join(words)}{tail}"


def article(word: str) -> str:
    """Return the indefinite article of a word."""
    return "an" if word[0] in "aeiou" else "a"

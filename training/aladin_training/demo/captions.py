"""Captions that are true of one scene and of none of the similar scenes of its group."""

from __future__ import annotations

from collections.abc import Sequence
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
class Mention:
    """The words about one object in a caption; None for what is not mentioned."""

    shape: str
    colour: str | None
    pattern: str | None
    size: str | None

    def fits(self, thing: SceneObject) -> bool:
        """Tell whether all words are true of an object."""
        words = (
            (self.colour, thing.colour),
            (self.pattern, thing.pattern),
            (self.size, thing.size),
        )
        return self.shape == thing.shape and all(word in (None, fact) for word, fact in words)


@dataclass(frozen=True, kw_only=True)
class Statement:
    """The meaning of a caption.

    Attributes:
        mentions: Mentions of different objects.
        relation: Position of the first object relative to the second, or None.
        background: Background, or None if it is not mentioned.
    """

    mentions: tuple[Mention, ...]
    relation: str | None
    background: str | None

    def holds(self, scene: Scene) -> bool:
        """Tell whether the statement is true of a scene, even vaguely."""
        if self.background not in (None, scene.background):
            return False
        return any(
            all(mention.fits(thing) for mention, thing in zip(self.mentions, things, strict=True))
            and (self.relation is None or lies(things[0], self.relation, things[1]))
            for things in permutations(scene.objects, len(self.mentions))
        )


def write_captions(
    random: Random, scene: Scene, look_alikes: Sequence[Scene], count: int
) -> list[str] | None:
    """Write different captions of a scene.

    Args:
        random: Source of all choices.
        scene: Scene to describe.
        look_alikes: Scenes of which no caption may be true.
        count: Number of captions.

    Returns:
        The captions, or None if the look-alikes leave too little to say.
    """
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
        mentions=tuple(_mention(random, thing) for thing in things),
        relation=relation,
        background=scene.background if random.random() < 0.3 else None,
    )


def _mention(random: Random, thing: SceneObject) -> Mention:
    pattern_rate = 0.25 if thing.pattern == "plain" else 0.75
    return Mention(
        shape=thing.shape,
        colour=thing.colour if random.random() < 0.9 else None,
        pattern=thing.pattern if random.random() < pattern_rate else None,
        size=thing.size if random.random() < 0.5 else None,
    )


def lies(first: SceneObject, relation: str, second: SceneObject) -> bool:
    """Tell whether an object lies above, below, left or right of another, even slightly."""
    return _offset(first, second)[relation] > 0


def _offset(first: SceneObject, second: SceneObject) -> dict[str, float]:
    """Return the offset of the first object from the second in each direction."""
    right, below = first.x - second.x, first.y - second.y
    return {"above": -below, "below": below, "left": -right, "right": right}


def _phrase(random: Random, statement: Statement) -> str:
    phrases = [_noun_phrase(random, mention) for mention in statement.mentions]
    if statement.relation is not None:
        relation = random.choice(RELATION_WORDS[statement.relation])
        phrases[:2] = [f"{phrases[0]} {relation} {phrases[1]}"]
    text = random.choice(_OPENINGS) + " and ".join(phrases)
    if statement.background is not None:
        text += " " + random.choice(BACKGROUND_WORDS[statement.background])
    return text


def _noun_phrase(random: Random, mention: Mention) -> str:
    words: list[str] = []
    tail = ""
    if mention.pattern in PATTERN_TAILS and random.random() < 0.25:
        tail = " " + PATTERN_TAILS[mention.pattern]
    elif mention.pattern is not None:
        words.append(random.choice(PATTERN_WORDS[mention.pattern]))
    if mention.colour is not None:
        words.insert(random.randint(0, len(words)), mention.colour)
    if mention.size is not None:
        words.insert(0, random.choice(SIZE_WORDS[mention.size]))
    words.append(mention.shape)
    article = "an" if words[0][0] in "aeiou" else "a"
    return f"{article} {' '.join(words)}{tail}"

"""The content of scenes, and groups of scenes that the same words describe."""

from __future__ import annotations

from dataclasses import dataclass
from random import Random

SHAPES = ("circle", "square", "triangle", "star", "heart", "diamond", "cross", "moon")
COLOURS = ("red", "orange", "yellow", "green", "blue", "purple", "pink", "black")
PATTERNS = ("plain", "striped", "dotted", "checkered")
SIZES = ("small", "big")
BACKGROUNDS = ("beach", "forest", "meadow", "night", "sea", "snow", "sunset", "wall")

# Half of an object's width, in fractions of the picture's, before a random variation.
_RADIUS = {"small": 0.12, "big": 0.2}

# Positions by number of objects, far enough apart for two big ones.
_PLACES = {
    2: (
        ((0.5, 0.27), (0.5, 0.73)),
        ((0.27, 0.5), (0.73, 0.5)),
    ),
    3: (
        ((0.27, 0.27), (0.73, 0.27), (0.5, 0.73)),
        ((0.5, 0.27), (0.27, 0.73), (0.73, 0.73)),
        ((0.27, 0.27), (0.27, 0.73), (0.73, 0.5)),
        ((0.73, 0.27), (0.73, 0.73), (0.27, 0.5)),
    ),
}


@dataclass(frozen=True, kw_only=True)
class SceneObject:
    """One object: its centre, x downwards y, and half of its width, in fractions of the picture."""

    shape: str
    colour: str
    pattern: str
    size: str
    x: float
    y: float
    radius: float


@dataclass(frozen=True, kw_only=True)
class Scene:
    """Two or three objects, of different shapes and colours, in front of a background."""

    background: str
    objects: tuple[SceneObject, ...]


def deal_group(random: Random, scenes: int) -> list[Scene]:
    """Assign the same attributes to the objects of several scenes, each in another way.

    All scenes of the group show the same attributes, and differ only in which object has which. A
    bag of words cannot tell them apart.
    """
    count = random.choice((2, 3))
    shapes = random.sample(SHAPES, count)
    colours = random.sample(COLOURS, count)
    patterns = random.choices(PATTERNS, k=count)
    sizes = random.choices(SIZES, k=count)
    background = random.choice(BACKGROUNDS)
    places = list(random.choice(_PLACES[count]))
    group: list[Scene] = []
    for _ in range(scenes):
        for cards in (colours, patterns, sizes, places):
            random.shuffle(cards)
        objects = tuple(
            _place(random, shape, colour, pattern, size, place)
            for shape, colour, pattern, size, place in zip(
                shapes, colours, patterns, sizes, places, strict=True
            )
        )
        group.append(Scene(background=background, objects=objects))
    return group


def _place(
    random: Random, shape: str, colour: str, pattern: str, size: str, place: tuple[float, float]
) -> SceneObject:
    radius = _RADIUS[size] * random.uniform(0.92, 1.08)
    # A small object has more room before it reaches its neighbour or the edge.
    room = max(0.0, 0.23 - radius)
    return SceneObject(
        shape=shape,
        colour=colour,
        pattern=pattern,
        size=size,
        x=round(place[0] + random.uniform(-room, room), 3),
        y=round(place[1] + random.uniform(-room, room), 3),
        radius=round(radius, 3),
    )

"""Queries of the drawn scenes, and the scenes that they are true of."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from aladin_training.demo.captions import (
    BACKGROUND_WORDS,
    PATTERN_TAILS,
    PATTERN_WORDS,
    RELATION_WORDS,
    SIZE_WORDS,
    Statement,
    article,
)
from aladin_training.demo.layout import COLOURS, SHAPES, Scene, SceneObject

_WORD = re.compile(r"[^\W_]+")
_ARTICLES = frozenset(("a", "an", "the"))
_WITHOUT_MEANING = frozenset(("there", "is", "picture", "of", "here", "we", "see", "and"))


def _meanings() -> dict[tuple[str, ...], tuple[str, str]]:
    """Return the attribute and its value of each wording, the longest wordings first."""
    wordings: dict[str, tuple[str, str]] = {
        **{shape: ("shape", shape) for shape in SHAPES},
        **{colour: ("colour", colour) for colour in COLOURS},
    }
    for attribute, words in (("pattern", PATTERN_WORDS), ("size", SIZE_WORDS)):
        for value, each in words.items():
            wordings |= dict.fromkeys(each, (attribute, value))
    for value, tail in PATTERN_TAILS.items():
        nouns = tail.removeprefix("with a ").removeprefix("with ")
        wordings |= dict.fromkeys((tail, nouns, *nouns.split()), ("pattern", value))
    for value, each in BACKGROUND_WORDS.items():
        for phrase in each:
            noun = re.sub(r"^(on|at|in front of|in|among|under) ", "", phrase)
            wordings |= dict.fromkeys((phrase, noun), ("background", value))
    for value, each in RELATION_WORDS.items():
        wordings |= dict.fromkeys(each, ("relation", value))
    split = {tuple(word for _, word in _words(text)): meaning for text, meaning in wordings.items()}
    return dict(sorted(split.items(), key=lambda item: -len(item[0])))


def _words(text: str) -> list[tuple[int, str]]:
    """Return the words but articles, in lower case, each with its place in the text."""
    found = [(match.start(), match.group().lower()) for match in _WORD.finditer(text)]
    return [each for each in found if each[1] not in _ARTICLES]


_MEANINGS: Mapping[tuple[str, ...], tuple[str, str]] = _meanings()


@dataclass(frozen=True, kw_only=True)
class SceneQuery(Statement):
    """A text about scenes, as read, with the places of the words that name something of a thing."""

    named: tuple[tuple[int, int], ...] = ()

    @classmethod
    def read(cls, text: str) -> SceneQuery | None:
        """Read a caption or a query in its words; None if a word is none of the scenes'."""
        things: list[dict[str, str]] = []
        named: list[tuple[int, int]] = []
        relation = background = None
        is_open = False  # whether words still describe the last thing
        placed = _words(text)
        words = [word for _, word in placed]
        place = 0
        while place < len(words):
            wording = next((w for w in _MEANINGS if tuple(words[place:][: len(w)]) == w), None)
            if wording is None:
                if words[place] not in _WITHOUT_MEANING:
                    return None
                is_open = is_open and words[place] != "and"
                place += 1
                continue
            attribute, value = _MEANINGS[wording]
            said = placed[place:][: len(wording)]
            place += len(wording)
            if attribute == "relation":
                relation, is_open = value, False
            elif attribute == "background":
                background = value
            else:
                is_tail = wording[0] == "with"
                if not is_open or ("shape" in things[-1] and not is_tail):
                    things.append({})
                    is_open = True
                things[-1][attribute] = value
                named += [(start, len(things) - 1) for start, word in said if word != "with"]
        return cls(
            things=tuple(things), relation=relation, background=background, named=tuple(named)
        )


def read_scene(metadata: Mapping[str, Any]) -> Scene:
    """Return the scene that a photo's metadata describes."""
    scene = metadata["scene"]
    return Scene(
        background=scene["background"],
        objects=tuple(SceneObject(**thing) for thing in scene["objects"]),
    )


def right_scenes(texts: Sequence[str], scenes: Sequence[Scene]) -> NDArray[np.bool_]:
    """Find the scenes that texts are true of, (texts, scenes); foreign words are true of none."""
    right = np.zeros((len(texts), len(scenes)), dtype=np.bool_)
    for row, query in enumerate(map(SceneQuery.read, texts)):
        if query is not None:
            right[row] = [query.holds(scene) for scene in scenes]
    return right


def colour_shape_queries() -> Iterator[str]:
    """Yield "a COLOUR SHAPE" for all colours and shapes of the scenes."""
    for colour in COLOURS:
        for shape in SHAPES:
            yield f"{article(colour)} {colour} {shape}"


# Colours and shapes that no scene has.
FOREIGN_COLOURS = ("white", "brown", "grey", "silver", "golden", "beige", "turquoise", "violet")
FOREIGN_SHAPES = ("hexagon", "rectangle", "oval", "arrow", "spiral", "pentagon", "house", "tree")


def foreign_queries() -> Iterator[str]:
    """Yield "a COLOUR SHAPE" with a colour or a shape that no scene has."""
    for colour in FOREIGN_COLOURS:
        for shape in SHAPES:
            yield f"{article(colour)} {colour} {shape}"
    for colour in COLOURS:
        for shape in FOREIGN_SHAPES:
            yield f"{article(colour)} {colour} {shape}"

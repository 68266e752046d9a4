"""Captions with one word exchanged for another of its kind, so that all other words stay true."""

from __future__ import annotations

import random
import re
from collections.abc import Sequence

# Words of one line are exchanged for each other. Words that can be true of the same thing (a boy is
# a child, a jacket may be called a coat) are never in one line.
_THINGS_AND_COLOURS = """
    black white red blue green yellow pink orange brown purple grey
    dog cat horse cow elephant monkey goat bear duck
    dogs cats horses cows elephants monkeys goats bears ducks
    man woman
    men women
    boy girl
    boys girls
    ball frisbee stick kite balloon umbrella guitar bucket
    shirt coat dress sweater skirt
    hat helmet scarf tie backpack
    bike bicycle skateboard motorcycle car bus train boat truck
    beach street snow grass forest desert kitchen
    ocean mountain city field road pool park lake river
    soccer tennis basketball baseball hockey golf
    chair bench table bed couch
    swimming climbing skating cooking reading painting
"""
# What things have to do with each other: places, what is there or is not, numbers, postures.
_RELATIONS = """
    with without
    over under
    up down
    above below
    inside outside
    two three four five
    sitting running sleeping jumping
    sits runs sleeps jumps
"""
_WORD = re.compile(r"[a-z]+", re.IGNORECASE)


def _kinds(lines: str) -> dict[str, tuple[str, ...]]:
    kinds = [tuple(line.split()) for line in lines.strip().splitlines()]
    return {word: kind for kind in kinds for word in kind}


_THING_OR_COLOUR = _kinds(_THINGS_AND_COLOURS)
_ANY_KIND = _THING_OR_COLOUR | _kinds(_RELATIONS)


def exchange_word(
    caption: str, captions: Sequence[str], generator: random.Random, *, relations: bool = False
) -> str | None:
    """Exchange one word of a caption for one that no caption of its photo mentions.

    Args:
        caption: Caption to change.
        captions: All captions of its photo.
        generator: Source of all choices.
        relations: Exchange words for relations, numbers and postures, too, and not only nouns,
            colours and activities.

    Returns:
        None if the caption has no word of the lists.
    """
    kind_of = _ANY_KIND if relations else _THING_OR_COLOUR
    said = {word.lower() for text in captions for word in _WORD.findall(text)}
    found = [word for word in _WORD.finditer(caption) if word.group().lower() in kind_of]
    generator.shuffle(found)
    for word in found:
        others = [each for each in kind_of[word.group().lower()] if each not in said]
        if others:
            return caption[: word.start()] + generator.choice(others) + caption[word.end() :]
    return None

"""In which order the words of a line stand, where scripts run in different directions.

The rules of Unicode (UAX 9) for whole words, without its embeddings: what surrounds words without
letters decides for them. Inside a word Pillow applies them all, given raqm, as in its wheels.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Sequence
from itertools import groupby


def are_right_to_left(words: Sequence[str]) -> tuple[list[bool], bool]:
    """Find the direction of each word, and of the text.

    >>> are_right_to_left(["a", "1", "dog"])
    ([False, False, False], False)

    Args:
        words: of one text, in its order.

    Returns:
        Whether each word runs from right to left, a word without letters as the one before it;
        and whether the text does, which is as its first letter.
    """
    found = [_direction(word) for word in words]
    of_text = next((each for each in found if each is not None), False)
    directions: list[bool] = []
    for each in found:
        before = directions[-1] if directions else of_text
        directions.append(before if each is None else each)
    return directions, of_text


def visual_order(right_to_left: Sequence[bool], of_text: bool) -> list[int]:
    """Return the places of a line's words as they stand from left to right.

    >>> visual_order([False, True, True, False], of_text=False)
    [0, 2, 1, 3]
    >>> visual_order([True, True, False, False], of_text=True)
    [2, 3, 1, 0]

    Args:
        right_to_left: of each word of the line.
        of_text: whether the text runs from right to left.
    """
    runs: list[list[int]] = []
    for reverse, run in groupby(range(len(right_to_left)), key=right_to_left.__getitem__):
        places = list(run)
        runs.append(places[::-1] if reverse else places)
    return [place for run in (reversed(runs) if of_text else runs) for place in run]


def _direction(word: str) -> bool | None:
    kinds = (unicodedata.bidirectional(character) for character in word)
    return next((kind != "L" for kind in kinds if kind in ("L", "R", "AL")), None)

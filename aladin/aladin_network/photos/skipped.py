"""What a job says of the photos and texts that it cannot use: the first of each kind, then counts.

A folder of ten thousand files of one unknown format is two lines longer than one of three.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator

# Elements of one kind that are named.
_NAMED = 3
_MOST_KINDS = 20
_MOST_CHARACTERS = 500
# What differs between reasons of one kind: quoted names, paths, numbers.
_DETAIL = re.compile(r"'[^']*'|\S*/\S*|\d+")


class SkippedLines:
    """Lines about skipped elements, in the order in which they come."""

    def __init__(self) -> None:
        self._counts: Counter[str] = Counter()
        self._reasons: dict[str, str] = {}

    def add(self, name: str, reason: str) -> Iterator[str]:
        """Count an element; yield its line if it is one of those that are named.

        Args:
            name: Name or place of the element.
            reason: Reason in words.
        """
        kind = _DETAIL.sub("", reason)
        if kind not in self._counts and len(self._counts) == _MOST_KINDS:
            kind = ""  # all others are one kind
        self._counts[kind] += 1
        self._reasons.setdefault(kind, reason)
        if self._counts[kind] <= _NAMED:
            yield f"skipped {name}: {reason}"[:_MOST_CHARACTERS]

    def rest(self) -> Iterator[str]:
        """Yield how many there were of each kind that was not named as a whole."""
        for kind, count in self._counts.items():
            if count > _NAMED:
                reason = self._reasons[kind] if kind else "of other kinds"
                yield f"skipped {count - _NAMED} more: {reason}"[:_MOST_CHARACTERS]


def skipped_lines(elements: Iterable[tuple[str, str]]) -> Iterator[str]:
    """Yield the lines about elements that are all known.

    Args:
        elements: Name and reason of each.
    """
    lines = SkippedLines()
    for name, reason in elements:
        yield from lines.add(name, reason)
    yield from lines.rest()

"""Comparing an answer with a stored one: ids exactly but for ties, numbers to `TOLERANCE`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import pytest

TOLERANCE = 1e-4


def differences(found: Mapping[str, Any], stored: Mapping[str, Any]) -> Iterator[str]:
    """Describe in what an answer differs from a stored one.

    What an answer lacks is not compared: some doors show less than others.
    """
    for name in ("refused", "reranked", "degraded", "facets"):
        if name == "refused" and (name in found) != (name in stored):
            yield f"refused {found.get(name)!r}, stored {stored.get(name)!r}"
            return
        if found.get(name) is not None and found[name] != stored[name]:
            yield f"{name} {found[name]!r}, stored {stored[name]!r}"
    ours, theirs = found.get("hits", []), stored.get("hits", [])
    if len(ours) != len(theirs):
        yield f"{len(ours)} hits, stored {len(theirs)}"
        return
    by_id = {hit["id"]: hit for hit in theirs}
    for place, (hit, expected) in enumerate(zip(ours, theirs, strict=True)):
        # In a tie, other places may hold the item, or the last ones of the page another item.
        at = f"hit {place} {hit['id']!r}"
        if hit["id"] != expected["id"] and hit["score"] != _near(expected["score"]):
            yield f"{at}: stored {expected['id']!r}"
            continue
        same = by_id.get(hit["id"])
        if same is None:
            continue
        for name in ("score", "match", "align"):
            if name in hit and hit[name] != _near(same[name]):
                yield f"{at}: {name} {hit[name]}, stored {same[name]}"
        if "evidence" in hit:
            yield from (f"{at}: {each}" for each in _words(hit["evidence"], same["evidence"]))


def _words(found: list[list[Any]], stored: list[list[Any]]) -> Iterator[str]:
    if [word[0] for word in found] != [word[0] for word in stored]:
        yield f"words {found}, stored {stored}"
        return
    for (word, region, score), (_, expected, best) in zip(found, stored, strict=True):
        # Two regions may be equally good for a word.
        if score != _near(best):
            yield f"{word!r} {score} at {region}, stored {best} at {expected}"


def _near(value: float) -> Any:
    return pytest.approx(value, abs=TOLERANCE)

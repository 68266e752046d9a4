"""Reasons without paths of this machine."""

from __future__ import annotations

import pytest

from aladin_service.http.error_responses import without_paths


@pytest.mark.parametrize(
    ("reason", "shown"),
    [
        ("/home/me/up/broken.jpg: not an image", "not an image"),
        ("/home/me/my: photos/a b.jpg: damaged or cut short (x)", "damaged or cut short (x)"),
        ("/data/0.tar@51200: expected 9 bytes, got 3", "expected 9 bytes, got 3"),
        ("cannot read '/home/me/x y.npz': cut short", "cannot read 'x y.npz': cut short"),
        ("open failed (/home/me/x.npz@12)", "open failed (x.npz@12)"),
        ("sub/a.jpg: 0 bytes, not an image", "sub/a.jpg: 0 bytes, not an image"),
        ("the text has 9 tokens, at most 8 are allowed", None),
        ("12 bytes / pixel, and/or http://host/a", None),
    ],
)
def test_absolute_paths_are_removed(reason: str, shown: str | None) -> None:
    assert without_paths(reason) == (reason if shown is None else shown)

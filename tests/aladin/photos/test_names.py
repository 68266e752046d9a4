"""File names as ids."""

from __future__ import annotations

import os

import pytest

from aladin_network.photos.files import name_fault, printable


@pytest.mark.parametrize(
    ("name", "fault", "printed"),
    [
        (os.fsdecode(b"caf\xe9.jpg"), "not UTF-8", "caf\\xe9.jpg"),
        ("new\nline.jpg", "control character", "new\\nline.jpg"),
        ("c1\x85.jpg", "control character", "c1\\x85.jpg"),
        ("half \ud83d of a pair.jpg", "not UTF-8", "half \\ud83d of a pair.jpg"),
    ],
)
def test_a_name_that_cannot_be_an_id(name: str, fault: str, printed: str) -> None:
    assert fault in (name_fault(name) or "")
    assert printable(name) == printed


@pytest.mark.parametrize("name", ["a.jpg", "sub/a b#c?.jpg", "ünïcode \N{DOG}.jpg", "\\n.jpg"])
def test_every_other_name_is_taken_as_it_is(name: str) -> None:
    assert name_fault(name) is None
    assert printable(name) == name

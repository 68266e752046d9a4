from __future__ import annotations

import pytest

from aladin_service.evidence import drawing
from aladin_service.evidence.drawing import font, is_missing, printable, shortened, width_px


def test_a_system_without_the_typeface_draws_with_pillows(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(drawing, "_TYPEFACE", "no such typeface.ttf")
    font.cache_clear()
    assert 50 < width_px("motorcycle", 30) < 250
    assert is_missing("狗")
    font.cache_clear()


@pytest.mark.parametrize(
    ("text", "missing"),
    [
        ('A red dog\'s "ball" (100 %), -0.5: a+b …', False),
        ("a 狗", True),
        ("달리는 개", True),
        ("a \N{DOG FACE}", True),
    ],
)
def test_characters_that_cannot_be_drawn_are_known(text: str, missing: bool) -> None:
    assert is_missing(text) is missing


def test_a_text_is_cut_where_there_is_no_room() -> None:
    assert shortened("motorcycle", 30, 1000) == "motorcycle"
    for room in (30, 60, 100):
        cut = shortened("motorcycle", 30, room)
        assert cut.endswith("…")
        assert "motorcycle".startswith(cut[:-1])
        assert width_px(cut, 30) <= room
        assert width_px("motorcycle"[: len(cut)] + "…", 30) > room
    # However long it is, no more than could ever have room is looked at.
    assert shortened("i" * 10**7, 30, 100) == shortened("i" * 100, 30, 100)


def test_invisible_and_direction_changing_characters_are_left_out() -> None:
    assert printable("a\tb\nc\u00a0d") == "a b c d"
    assert printable("safe\u202etxt.exe\u200b\x07\ud800\ue000") == "safetxt.exe"

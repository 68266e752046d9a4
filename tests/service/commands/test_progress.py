"""Progress on stderr."""

from __future__ import annotations

import io
import sys

import pytest
from rich.console import Console

from aladin_network.types import Progress
from aladin_service.commands.progress import (
    BarProgress,
    LineProgress,
    duration,
    make_bars,
    stderr_progress,
)


class Clock:
    def __init__(self) -> None:
        self.now_s = 100.0

    def __call__(self) -> float:
        return self.now_s


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_lines_come_every_ten_seconds_with_the_rate_of_the_last_half_minute() -> None:
    clock, stream = Clock(), io.StringIO()
    progress = LineProgress(stream, clock)
    progress.advance()  # of nothing, which writes nothing
    progress.start(1000, "photos")
    for _ in range(100):
        clock.now_s += 0.125
        progress.note(loss=1.2345)
        progress.advance()
    progress.start(1000, "steps")
    progress.advance(500)  # a resumed run counts what it finds done
    for _ in range(60):
        clock.now_s += 1
        progress.advance(2)
    progress.start(None, "bytes")
    clock.now_s += 4
    progress.advance(1000)
    progress.start(10, "files")
    progress.close()
    first, photos, resumed, *_, late, steps, read = stream.getvalue().splitlines()
    assert first == "80/1,000 photos, 8 photos/s, 1 min 55 s left  loss=1.23"
    assert photos == "100/1,000 photos, in 12.5 s, 8 photos/s  loss=1.23"
    assert resumed == "520/1,000 steps, 52 steps/s, 9.2 s left"
    assert late == "620/1,000 steps, 2 steps/s, 3 min 10 s left"
    assert steps.startswith("620/1,000 steps, in 1 min 00 s")
    assert read == "1,000 bytes, in 4.0 s, 250 bytes/s"


@pytest.mark.parametrize("stream", [io.StringIO(), Terminal()], ids=["file", "terminal"])
def test_stderr_shows_the_work_on_files_and_terminals(
    stream: io.StringIO, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "stderr", stream)
    monkeypatch.setenv("COLUMNS", "200")
    with stderr_progress() as progress:
        assert isinstance(progress, Progress)
        progress.start(3, "photos")
        progress.note(loss=0.5, stage="teacher")
        progress.advance(3)
    for words in ("3/3", "photos", "loss=0.5", "stage=teacher"):
        assert words in stream.getvalue()


@pytest.mark.parametrize(
    ("seconds", "words"),
    [(0.04, "0.0 s"), (8.21, "8.2 s"), (185, "3 min 05 s"), (7440, "2 h 04 min")],
)
def test_durations_are_for_people(seconds: float, words: str) -> None:
    assert duration(seconds) == words


@pytest.mark.parametrize(
    ("columns", "figures"),
    [
        (79, []),
        (80, ["list_s=1"]),
        (110, ["list_s=1", "read_s=0.1"]),
        (140, ["list_s=1", "read_s=0.1", "encode_s=99.2"]),
    ],
)
def test_a_bar_shows_what_the_terminal_has_room_for(columns: int, figures: list[str]) -> None:
    console, clock = Console(file=io.StringIO(), width=columns, force_terminal=False), Clock()
    bars = make_bars(console)
    progress = BarProgress(bars, clock)

    def shown() -> list[str]:
        with console.capture() as captured:
            console.print(bars)
        return captured.get().splitlines()

    progress.start(None, "photos listed")
    clock.now_s += 2
    progress.advance(8223)
    progress.start(8223, "photos")
    progress.note(list_s=1.0, read_s=0.1, encode_s=99.2)
    clock.now_s += 50
    progress.advance(7000)
    listed, photos = shown()
    assert listed.startswith("photos listed ")
    assert listed.rstrip().endswith("8223/8223 in 2.0 s, 4,112 photos listed/s")
    assert photos.split("7000/8223 140 photos/s, 8.7 s left")[1].split() == figures
    progress.close()
    assert "7000/8223 in 50.0 s, 140 photos/s" in shown()[1]

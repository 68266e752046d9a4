"""Progress of long jobs on stderr: a bar on a terminal, a line every ten seconds elsewhere."""

from __future__ import annotations

import sys
import time
from collections import deque
from collections.abc import Callable, Generator
from contextlib import contextmanager
from typing import TYPE_CHECKING, TextIO

from aladin_network.types import Progress

if TYPE_CHECKING:
    from rich.console import Console
    from rich.progress import Progress as RichProgress

LINE_INTERVAL_S = 10.0
RATE_WINDOW_S = 30.0


class Pace:
    """Rate of one piece of work over its last half minute, since the start may differ.

    Attributes:
        total: Number of units of the whole task, or None if unknown.
        unit: Unit that is counted.
        done: Number of units done so far.
    """

    def __init__(self, total: int | None, unit: str, clock: Callable[[], float]) -> None:
        """Start the clock."""
        self.total = total
        self.unit = unit
        self.done = 0
        self._clock = clock
        self._started_s = clock()
        self._recent: deque[tuple[float, int]] = deque([(self._started_s, 0)])

    @property
    def elapsed_s(self) -> float:
        """Seconds since the start."""
        return self._clock() - self._started_s

    def advance(self, count: int) -> None:
        """Count finished units."""
        self.done += count
        now_s = self._clock()
        # One sample per second is enough; the rate is relative to the oldest sample in the window.
        if now_s - self._recent[-1][0] >= 1:
            self._recent.append((now_s, self.done))
        while len(self._recent) > 2 and now_s - self._recent[1][0] >= RATE_WINDOW_S:
            self._recent.popleft()

    def describe(self) -> str:
        """Return the rate, and the remaining time if the total is known."""
        since_s, before = self._recent[0]
        rate = (self.done - before) / max(self._clock() - since_s, 1e-9)
        if rate == 0:
            return "starting"
        words = f"{_readable(rate)} {self.unit}/s"
        if self.total is not None and self.done < self.total:
            words += f", {duration((self.total - self.done) / rate)} left"
        return words

    def summary(self) -> str:
        """Return the duration of the whole piece of work."""
        mean = self.done / max(self.elapsed_s, 1e-9)
        return f"in {duration(self.elapsed_s)}, {_readable(mean)} {self.unit}/s"


class LineProgress:
    """Writes a line every ten seconds, and one at the end of each piece of work."""

    def __init__(self, stream: TextIO, clock: Callable[[], float] = time.monotonic) -> None:
        """Write to `stream`, with the time of `clock`."""
        self._stream = stream
        self._clock = clock
        self._pace: Pace | None = None
        self._notes: dict[str, float | str] = {}
        self._last_line_s = clock()

    def start(self, total: int | None, unit: str) -> None:
        """Begin a piece of work; the previous one has ended."""
        self.close()
        self._pace = Pace(total, unit, self._clock)
        self._notes = {}
        self._last_line_s = self._clock()

    def advance(self, count: int = 1) -> None:
        """Count, and write a line if one is due."""
        if self._pace is None:
            return
        self._pace.advance(count)
        if self._clock() - self._last_line_s >= LINE_INTERVAL_S:
            self._write(self._pace.describe())

    def note(self, **numbers: float | str) -> None:
        """Store figures for the next line."""
        self._notes.update(numbers)

    def close(self) -> None:
        """End the current piece of work with its line."""
        if self._pace is not None and self._pace.done:
            self._write(self._pace.summary())
        self._pace = None

    def _write(self, words: str) -> None:
        assert self._pace is not None
        total = "" if self._pace.total is None else f"/{self._pace.total:,}"
        line = f"{self._pace.done:,}{total} {self._pace.unit}, {words}"
        self._stream.write("  ".join([line, *_figures(self._notes)]) + "\n")
        self._stream.flush()
        self._last_line_s = self._clock()


class BarProgress:
    """Draws one bar for each piece of work, with the figures that the terminal has room for."""

    def __init__(self, bars: RichProgress, clock: Callable[[], float] = time.monotonic) -> None:
        """Draw with the `bars` of `make_bars`, which the caller starts and stops."""
        self._bars = bars
        self._clock = clock
        # Columns are aligned: each is as wide as that of the longest line so far.
        self._widths = [0, _bar_width(bars.console.width), 0, 0]
        self._pace: Pace | None = None
        self._notes: dict[str, float | str] = {}

    def start(self, total: int | None, unit: str) -> None:
        """Begin a piece of work; the previous bar ends."""
        self.close()
        self._pace = Pace(total, unit, self._clock)
        self._notes = {}
        self._bars.add_task(unit, total=total, pace="starting", notes="")

    def advance(self, count: int = 1) -> None:
        """Advance the bar."""
        if self._pace is None:
            return
        self._pace.advance(count)
        self._bars.update(self._bars.task_ids[-1], advance=count)
        self._draw(self._pace.describe())

    def note(self, **numbers: float | str) -> None:
        """Show figures beside the bar."""
        self._notes.update(numbers)
        if self._pace is not None:
            self._draw(self._pace.describe())

    def close(self) -> None:
        """End the current piece of work: its total is known now, and how long it took."""
        if self._pace is None:
            return
        task = self._bars.task_ids[-1]
        if self._pace.total is None:
            self._bars.update(task, total=self._pace.done)
        if self._pace.done:
            self._draw(words := self._pace.summary())
            done = self._pace.done
            lengths = (len(self._pace.unit), 0, 2 * len(str(done)) + 1, len(words))
            self._widths = list(map(max, self._widths, lengths))
        self._bars.stop_task(task)
        self._pace = None

    def _draw(self, words: str) -> None:
        """Show the pace, and the figures that fit into the line."""
        assert self._pace is not None
        total = "?" if self._pace.total is None else str(self._pace.total)
        lengths = (len(self._pace.unit), 0, len(str(self._pace.done)) + 1 + len(total), len(words))
        widths = list(map(max, self._widths, lengths))
        room = self._bars.console.width - sum(widths) - len(widths)
        notes = ""
        for figure in _figures(self._notes):
            longer = f"{notes}  {figure}" if notes else figure
            if len(longer) > room:
                break
            notes = longer
        self._bars.update(self._bars.task_ids[-1], pace=words, notes=notes)


@contextmanager
def stderr_progress() -> Generator[Progress]:
    """Yield the progress display that is appropriate for this process's stderr."""
    if not sys.stderr.isatty():
        lines = LineProgress(sys.stderr)
        yield lines
        lines.close()
        return
    from rich.console import Console

    with make_bars(Console(stderr=True)) as bars:
        progress = BarProgress(bars)
        yield progress
        progress.close()


def make_bars(console: Console) -> RichProgress:
    """Return the display of a `BarProgress` on a terminal."""
    from rich.progress import BarColumn, MofNCompleteColumn, TextColumn
    from rich.progress import Progress as RichProgress

    return RichProgress(
        TextColumn("{task.description}"),
        BarColumn(bar_width=_bar_width(console.width)),
        MofNCompleteColumn(),
        TextColumn("{task.fields[pace]}"),
        TextColumn("[dim]{task.fields[notes]}"),
        console=console,
    )


def _bar_width(columns: int) -> int:
    return 30 if columns >= 100 else 15


def duration(seconds: float) -> str:
    """Format seconds for people: ``8.2 s``, ``3 min 05 s``, ``2 h 04 min``."""
    if seconds < 60:
        return f"{seconds:.1f} s"
    minutes, rest_s = divmod(round(seconds), 60)
    if minutes < 60:
        return f"{minutes} min {rest_s:02d} s"
    return f"{minutes // 60} h {minutes % 60:02d} min"


def _readable(value: float) -> str:
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"


def _figures(notes: dict[str, float | str]) -> list[str]:
    return [
        f"{name}={value}" if isinstance(value, str) else f"{name}={_readable(value)}"
        for name, value in notes.items()
    ]

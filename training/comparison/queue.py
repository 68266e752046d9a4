"""Which run is next: one that need not wait for a stage that another is training right now."""

from __future__ import annotations

from collections.abc import Iterable

from training.comparison.plan import PlannedRun
from training.stage_store import stage_history


class RunQueue:
    """Hands runs out in order, those aside that would train a stage twice or wait for it."""

    def __init__(self, runs: Iterable[PlannedRun]) -> None:
        """Line runs up."""
        self._waiting = list(runs)
        self._running: dict[str, frozenset[str]] = {}
        self._finished: frozenset[str] = frozenset()

    def take(self) -> PlannedRun | None:
        """Return the next run; None: there is none left.

        Where every run that is left shares an unfinished stage with one under way, the first of
        them is next all the same: it waits for that stage by itself.
        """
        if not self._waiting:
            return None
        busy = frozenset[str]().union(*self._running.values()) - self._finished
        apart = (run for run in self._waiting if busy.isdisjoint(_stages(run)))
        run = next(apart, self._waiting[0])
        self._waiting.remove(run)
        self._running[run.label] = _stages(run)
        return run

    def end(self, run: PlannedRun) -> None:
        """Note that a run has ended, well or not."""
        self._finished |= self._running.pop(run.label)


def _stages(run: PlannedRun) -> frozenset[str]:
    """Identify the stages of a run by their history, as finished stages are shared."""
    recipe = run.recipe
    return frozenset(stage_history(recipe, number) for number in range(len(recipe.stage)))

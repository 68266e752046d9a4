"""What a run leaves to look at: a log of numbers, TensorBoard events and a plot."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from aladin_network.files import atomic_file


class RunLog:
    """The numbers of one stage, one JSON line an entry, shown in TensorBoard and as curves.

    A resumed stage drops the entries after the step it resumes from, and writes them again.
    """

    def __init__(self, folder: Path, stage: str, resume_step: int) -> None:
        """Open the log of a stage.

        Args:
            folder: the stage's.
            stage: its name, for titles.
            resume_step: last step whose entries are kept.
        """
        # Heavy imports, needed by training alone.
        from torch.utils.tensorboard.writer import SummaryWriter

        self._folder = folder
        self._stage = stage
        self._path = folder / "log.jsonl"
        self.entries = [entry for entry in _read(self._path) if entry["step"] <= resume_step]
        with atomic_file(self._path) as partial:
            partial.write_text("".join(json.dumps(entry) + "\n" for entry in self.entries))
        self._writer = SummaryWriter(str(folder / "tensorboard"), purge_step=resume_step + 1)

    def write(self, step: int, numbers: dict[str, float]) -> None:
        """Add an entry, e.g. ``{"loss": 1.2}`` or ``{"matching_rsum": 240.0}``."""
        entry = {"step": step, **numbers}
        self.entries.append(entry)
        with self._path.open("a", encoding="utf-8") as file:
            file.write(json.dumps(entry) + "\n")
        for name, value in numbers.items():
            self._writer.add_scalar(f"{self._stage}/{name}", value, step)

    def draw(self) -> None:
        """Draw ``curves.png``: the loss, and the validation rsums, against the step."""
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.figure import Figure

        figure = Figure(figsize=(10, 4))
        FigureCanvasAgg(figure)
        left, right = figure.subplots(1, 2)
        for axes, suffix, title in (
            (left, "loss", "training loss"),
            (right, "rsum", "validation rsum"),
        ):
            names = sorted(
                {name for entry in self.entries for name in entry if name.endswith(suffix)}
            )
            for name in names:
                points = [(entry["step"], entry[name]) for entry in self.entries if name in entry]
                axes.plot(*zip(*points, strict=True), label=name.replace("_", " "), linewidth=1.5)
            axes.set(title=f"{self._stage}: {title}", xlabel="step")
            axes.grid(alpha=0.3)
            if names:
                axes.legend()
        with atomic_file(self._folder / "curves.png") as partial:
            figure.savefig(partial, format="png", dpi=120)

    def close(self) -> None:
        """Flush and close the TensorBoard events."""
        self._writer.close()


def _read(path: Path) -> list[dict[str, Any]]:
    if not path.exists():
        return []
    entries: list[dict[str, Any]] = []
    for line in path.read_text(encoding="utf-8").splitlines():
        try:
            entries.append(json.loads(line))
        except ValueError:  # the last line of a killed run may be cut short
            break
    return entries

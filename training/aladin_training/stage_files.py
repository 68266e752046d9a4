"""The files that a stage leaves in its folder, besides its checkpoint and the state for resuming.

log.jsonl           one JSON line an entry: in training losses, what they report of themselves (a
                    learned temperature), learning rates and, of stages with several tasks, their
                    shares of the gradient; in validation rsum, R@1 and MD
tensorboard/        the same numbers as TensorBoard events
curves.png          the same numbers as curves
timing.json         steps, trained parameters, and seconds of each part of the work
branches/N/         checkpoint of the online anchor N (DBL), counted from 0
validation.json     metrics on the validation split; written last: a stage that has it is finished
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from aladin_network.errors import CheckpointError
from aladin_network.files import atomic_file, write_json
from aladin_network.scoring.metrics import DirectionMetrics, RetrievalMetrics

_LOG = "log.jsonl"
_TIMING = "timing.json"
_VALIDATION = "validation.json"
_DIRECTIONS = ("text_to_image", "image_to_text")


def branch_checkpoint(folder: Path, number: int) -> Path:
    """Return the folder of an online anchor's checkpoint."""
    return folder / "branches" / str(number)


def branch_checkpoints(folder: Path) -> list[Path]:
    """Return the checkpoints of a stage's online anchors, in their order."""
    # A writer that was killed may have left a folder of another name.
    found = [path for path in (folder / "branches").glob("*") if path.name.isdigit()]
    return sorted(found, key=lambda path: int(path.name))


class Validation(NamedTuple):
    """Quality of a score on the validation split: recalls, and DBL's MD."""

    metrics: RetrievalMetrics
    mean_difference: float

    def entries(self, score: str) -> dict[str, float]:
        """Return the entries of a stage's log, by names that begin with the score's."""
        return {
            f"{score}_rsum": self.metrics.rsum,
            f"{score}_text_to_image_r1": self.metrics.text_to_image.r1,
            f"{score}_image_to_text_r1": self.metrics.image_to_text.r1,
            f"{score}_mean_difference": self.mean_difference,
        }


# What ends the names of a curve's entries, and the title of the panel that they are drawn in.
_PANELS = {
    "loss": "training loss",
    "gradient_share": "share of the gradient at the encodings",
    "temperature": "learned temperature",
    "rsum": "validation rsum",
    "r1": "validation R@1",
    "mean_difference": "validation MD",
}


class StageLog:
    """The log of one stage: JSON lines, TensorBoard events and curves.

    A resumed stage drops the entries after the step it resumes from, and writes them again.
    """

    def __init__(self, folder: Path, stage: str, resume_step: int) -> None:
        """Open the log."""
        # A heavy import that only training needs.
        from torch.utils.tensorboard.writer import SummaryWriter

        self._folder = folder
        self._stage = stage
        self._path = folder / _LOG
        self.entries = [entry for entry in _read_log(self._path) if entry["step"] <= resume_step]
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
        """Draw ``curves.png``: everything but the learning rate against the step."""
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.figure import Figure

        logged = {name for entry in self.entries for name in entry}
        panels = {
            title: names
            for suffix, title in _PANELS.items()
            if (names := sorted(name for name in logged if name.endswith(suffix)))
        }
        rows = max(1, -(-len(panels) // 2))
        figure = Figure(figsize=(10, 4 * rows), layout="constrained")
        FigureCanvasAgg(figure)
        grid = figure.subplots(rows, 2, squeeze=False)
        for axes in grid.flat[len(panels) :]:
            axes.set_visible(False)
        for axes, (title, names) in zip(grid.flat, panels.items(), strict=False):
            for name in names:
                points = [(entry["step"], entry[name]) for entry in self.entries if name in entry]
                axes.plot(*zip(*points, strict=True), label=name.replace("_", " "), linewidth=1.5)
            axes.set(title=f"{self._stage}: {title}", xlabel="step")
            axes.grid(alpha=0.3)
            axes.legend()
        with atomic_file(self._folder / "curves.png") as partial:
            figure.savefig(partial, format="png", dpi=120)

    def close(self) -> None:
        """Flush and close the TensorBoard events."""
        self._writer.close()


class StageFacts(NamedTuple):
    """Steps, minutes, trained parameters, and rsum by score of a finished stage."""

    steps: int
    minutes: float
    parameters: int
    rsum: dict[str, float]


def is_finished(folder: Path) -> bool:
    """Tell whether the stage of a folder is finished."""
    return (folder / _VALIDATION).exists()


def write_results(
    folder: Path, timing: Mapping[str, float], metrics: Mapping[str, RetrievalMetrics]
) -> None:
    """Write seconds ("NAME_s") and metrics of a stage; it counts as finished from here on."""
    write_json(folder / _TIMING, dict(timing))
    write_json(
        folder / _VALIDATION,
        {
            name: {direction: getattr(each, direction)._asdict() for direction in _DIRECTIONS}
            for name, each in metrics.items()
        },
    )


def read_validation(folder: Path) -> dict[str, RetrievalMetrics]:
    """Read the validation metrics of a finished stage, by score name."""
    data = json.loads((folder / _VALIDATION).read_text(encoding="utf-8"))
    return {
        name: RetrievalMetrics(*(DirectionMetrics(**directions[each]) for each in _DIRECTIONS))
        for name, directions in data.items()
    }


def read_facts(folder: Path) -> StageFacts:
    """Read cost and result of a finished stage."""
    try:
        timing = json.loads((folder / _TIMING).read_text(encoding="utf-8"))
        seconds = timing["data_s"] + timing["step_s"] + timing["validation_s"]
        rsum = {name: each.rsum for name, each in read_validation(folder).items()}
        return StageFacts(timing["steps"], seconds / 60, timing["parameters"], rsum)
    except (OSError, ValueError, KeyError) as error:
        raise CheckpointError(f"{folder}: not a finished stage ({error!r})") from error


def read_curves(folder: Path) -> dict[str, dict[int, float]]:
    """Read a stage's log: the values of every entry by step, by its name."""
    curves: dict[str, dict[int, float]] = {}
    for entry in _read_log(folder / _LOG):
        for name, value in entry.items():
            if name != "step":
                curves.setdefault(name, {})[entry["step"]] = value
    return curves


def _read_log(path: Path) -> list[dict[str, Any]]:
    if not path.exists():
        return []
    entries: list[dict[str, Any]] = []
    for line in path.read_text(encoding="utf-8").splitlines():
        try:
            entries.append(json.loads(line))
        except ValueError:  # a process that is killed may leave its last line incomplete
            break
    return entries

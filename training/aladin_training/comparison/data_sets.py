"""One comparison on several data sets: a folder for each, and a report of all.

OUT/NAME/       the comparison on the data set NAME
OUT/report.md   what was found on each, side by side; also as report.html
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from aladin_network.errors import ConfigError
from aladin_network.types import Progress
from aladin_training.comparison.claims import judge, read_claims, sides_of
from aladin_training.comparison.compare import ComparisonResult
from aladin_training.comparison.plan import ComparisonPlan
from aladin_training.comparison.report import Report, Section, write_files
from aladin_training.comparison.summary import Comparison
from aladin_training.comparison.tables import claims_on_each, differences_on_each
from aladin_training.demo.scenes import draw_data_set

# Stands for scenes that are drawn, so that there always is a second data set.
SCENES = "scenes"

# Names of files that say nothing of what is in them.
_GENERAL = frozenset({"captions", "dataset", "data"})
_NOTE = "Intervals hold together within a data set, not over several. - : not finished."


class DataSet(NamedTuple):
    """A data set of a comparison."""

    name: str
    source: str


def data_set_name(source: Path) -> str:
    """Name a data set after its file, or the folder of a file named ``captions`` and the like.

    >>> data_set_name(Path("data/flickr8k/captions.jsonl"))
    'flickr8k'
    """
    name = source.parent.resolve().name if source.stem in _GENERAL else source.stem
    return name or "data"


def find_data_sets(sources: Sequence[str], out: Path) -> list[DataSet]:
    """Name data sets; see `data_set_name`.

    Args:
        sources: Sources as in recipes, or ``scenes`` for drawn ones, which belong into `out`.
        out: Folder of the comparison.

    Raises:
        ConfigError: If two have one name.
    """
    found: dict[str, DataSet] = {}
    for source in sources:
        name = re.sub(r"[^\w.-]+", "-", data_set_name(Path(source)))
        if name in found:
            raise ConfigError(
                f"data: {found[name].source} and {source} are both named {name!r}, expected "
                "distinct names of files or folders"
            )
        drawn = str(_scenes_file(out)) if source == SCENES else source
        found[name] = DataSet(name, drawn)
    return list(found.values())


def draw_scenes(out: Path, progress: Progress) -> None:
    """Draw the scenes of a comparison's folder, unless they are there."""
    file = _scenes_file(out)
    if not file.exists():
        draw_data_set(file.parent, progress=progress)


def compare_on_each(
    plans: Sequence[ComparisonPlan],
    out: Path,
    perform: Callable[[ComparisonPlan], ComparisonResult],
) -> tuple[Path, dict[str, str]]:
    """Run a comparison on each of several data sets, and report them together.

    Args:
        plans: The comparison on each data set, in a folder of its name; or a single one.
        out: Folder of all.
        perform: Runs one comparison.

    Returns:
        The Markdown file that reports all, and the reason of each failure by the run's label, with
        several data sets after their name.
    """
    results = {plan.out.name: perform(plan) for plan in plans}
    if len(plans) == 1:
        (only,) = results.values()
        return only.markdown, only.failures
    failures = {
        f"{name}, {label}": reason
        for name, result in results.items()
        for label, reason in result.failures.items()
    }
    return write_joint_report(
        {name: each.comparison for name, each in results.items()}, out
    ), failures


def write_joint_report(comparisons: Mapping[str, Comparison], out: Path) -> Path:
    """Write what a comparison found on each of several data sets."""
    names, claims = list(comparisons), read_claims()
    judged = {name: judge(sides_of(claims, each)) for name, each in comparisons.items()}
    plan = next(iter(comparisons.values())).plan
    sections = [
        Section(
            title=f"Differences to {plan.baseline}",
            table=differences_on_each(comparisons),
            note=f"Own rsum minus the baseline's, with simultaneous intervals. {_NOTE}",
        )
    ]
    if any(judged.values()):
        verdicts = Section(
            title="Claims of the papers", table=claims_on_each(judged), note=f"Verdicts. {_NOTE}"
        )
        sections.append(verdicts)
    report = Report(
        title=f"{len(plan.recipes)} recipes compared on {len(names)} data sets",
        conditions=[
            f"{name}: {each.plan.recipes[0].data.source}, split {each.plan.split}; its own report "
            f"is {name}/report.md."
            for name, each in comparisons.items()
        ],
        sections=sections,
    )
    return write_files(report, out)[0]


def _scenes_file(out: Path) -> Path:
    return out / SCENES / "data" / "captions.jsonl"

"""``aladin index compact``."""

from __future__ import annotations

from typing import Annotated

import typer

from service.commands.index.arguments import IndexArgument
from service.commands.index.reports import print_generation
from service.progress import stderr_progress


def compact(
    index: IndexArgument,
    keep: Annotated[
        int,
        typer.Option("--keep", min=0, help="Earlier generations that stay for `index rollback`."),
    ] = 1,
) -> None:
    """Fold what was added and deleted into a new generation.

    In: INDEX, which is searched and changed meanwhile as before; what comes during the compaction
    is carried over, and pending again. Out: a new live generation, taken up by services that run;
    earlier ones beyond --keep, those that were rolled back with all that was added to them, and
    uploaded photos that are in none, are removed from the disk; on stdout, what was done. Changes
    that will go with a generation that was rolled back are named on stderr beforehand. A kill
    leaves the index as it was; the next command that writes a generation clears up.
    """
    from index.changes.compact import compact_index
    from index.changes.pending import describe_changes

    with stderr_progress() as progress:
        report = compact_index(index, keep=keep, progress=progress)
    print_generation(index, report.generation, report.counts)
    typer.echo(
        f"  {report.added} added and {report.removed} removed items folded in, "
        f"{report.carried} changes came meanwhile"
    )
    if report.dropped:
        typer.echo(f"  generations removed: {', '.join(map(str, report.dropped))}")
    for number, changes in report.lost.items():
        typer.echo(
            f"  with generation {number} went changes that no other has: "
            f"{describe_changes(changes)}"
        )
    if report.in_use:
        kept = ", ".join(map(str, report.in_use))
        typer.echo(f"  still open somewhere, and removed next time: {kept}", err=True)

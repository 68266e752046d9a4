"""``aladin index rollback``."""

from __future__ import annotations

from typing import Annotated

import typer

from service.commands.index.arguments import IndexArgument


def rollback(
    index: IndexArgument,
    to: Annotated[
        int | None,
        typer.Option("--to", metavar="N", help="Generation to go to; else the one before."),
    ] = None,
) -> None:
    """Make an earlier generation live again, as it was when it was replaced.

    In: INDEX. Out: the generation is live with the changes that it had, taken up by services that
    run; on stdout, what is undone by that. Nothing is deleted yet: `--to` the generation that was
    left brings it back, with its changes, until the next `aladin index compact` removes it from
    the disk.
    """
    from index.changes.pending import describe_changes, rolled_back_changes
    from index.changes.rollback import rollback_index

    report = rollback_index(index, to)
    counts = ", ".join(f"{count} {target}" for target, count in report.counts.items())
    typer.echo(f"{index}: generation {report.generation} is live again: {counts}")
    typer.echo(f"  its own changes: {describe_changes(report.pending)}")
    undone = describe_changes(report.undone)
    typer.echo(f"  undone: generation {report.left} and its changes: {undone}")
    typer.echo(f"  to bring that back: aladin index rollback {index} --to {report.left}")

    for number, changes in rolled_back_changes(index).items():
        typer.echo(
            f"  no longer live, and removed by the next compaction: generation {number}, its "
            f"changes: {describe_changes(changes)}"
        )

"""``aladin index rollback``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from service.commands.index.arguments import IndexArgument

if TYPE_CHECKING:
    from collections.abc import Mapping

    from index.changes.pending import PendingChanges
    from index.settings import Target


def rollback(
    index: IndexArgument,
    to: Annotated[
        int | None,
        typer.Option("--to", metavar="N", help="Generation to go to; else the one before."),
    ] = None,
) -> None:
    """Make an earlier generation live again, as it was when it was replaced.

    In: INDEX. Out: the generation is live with the changes that it had, taken up by services that
    run; on stdout, what is undone by that. Nothing is deleted: `--to` the generation that was left
    brings it back, with its changes.
    """
    from index.changes.rollback import rollback_index

    report = rollback_index(index, to)
    counts = ", ".join(f"{count} {target}" for target, count in report.counts.items())
    typer.echo(f"{index}: generation {report.generation} is live again: {counts}")
    typer.echo(f"  its own changes: {_described(report.pending)}")
    typer.echo(f"  undone: generation {report.left} and its changes: {_described(report.undone)}")
    typer.echo(f"  to bring that back: aladin index rollback {index} --to {report.left}")


def _described(pending: Mapping[Target, PendingChanges]) -> str:
    changed = [
        f"{changes.added} {target} added, {changes.removed} removed"
        for target, changes in pending.items()
        if changes.added or changes.removed
    ]
    return "; ".join(changed) or "none"

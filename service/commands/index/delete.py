"""``aladin index delete``."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path
from typing import Annotated

import typer

from service.commands.index.arguments import IndexArgument
from service.commands.search import TargetName


def delete(
    index: IndexArgument,
    target: Annotated[TargetName, typer.Option("--target", help="Images or texts.")],
    ids: Annotated[
        list[str] | None, typer.Argument(metavar="ID...", help="Items to remove.")
    ] = None,
    file: Annotated[
        Path | None,
        typer.Option(
            "--ids", metavar="FILE", exists=True, dir_okay=False, help="More ids, one a line."
        ),
    ] = None,
    ignore_missing: Annotated[
        bool, typer.Option("--ignore-missing", help="Go on where an id is not in the index.")
    ] = False,
) -> None:
    """Remove items from an index, without a rebuild.

    In: INDEX, --target, and ids, in a file or in the command. Out: no search that begins later
    finds the items, in no service that runs; on stdout, how many are gone. All ids of the command
    are removed in one step, or none: an id that is not there is an error unless --ignore-missing.
    The photos themselves are not touched.
    """
    from aladin.errors import InputError
    from index.changes.writer import ChangesWriter
    from index.layout import generation_folder, live_generation
    from index.manifest import read_manifest

    wanted = list(ids or ())
    if file is not None:
        wanted += [line for line in file.read_text(encoding="utf-8").splitlines() if line]
    if not wanted:
        raise InputError("expected at least one ID, or --ids FILE, got none")
    manifest = read_manifest(generation_folder(index, live_generation(index)))
    with closing(ChangesWriter(index, manifest.model.id)) as writer:
        report = writer.delete(target.value, wanted, ignore_missing=ignore_missing)
    missing = f", {len(report.missing)} were not there" if report.missing else ""
    typer.echo(f"{index}: {target.value}: {len(report.deleted)} deleted{missing}")

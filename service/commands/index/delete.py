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
    from aladin.checkpoint import read_model_id
    from aladin.errors import InputError
    from index.layout import MODEL, generation_folder, live_generation
    from index.manifest import read_manifest
    from index.open import open_writer
    from service.engine_options import engine_options

    wanted = list(ids or ())
    if file is not None:
        wanted += [line for line in file.read_text(encoding="utf-8").splitlines() if line]
    if not wanted:
        raise InputError("expected at least one ID, or --ids FILE, got none")
    engine = engine_options(index)
    if engine is None:
        model_id = read_manifest(generation_folder(index, live_generation(index))).model.id
    else:
        model_id = read_model_id(index / MODEL)
    with closing(open_writer(index, model_id, engine=engine)) as writer:
        report = writer.delete(target.value, wanted, ignore_missing=ignore_missing)
    missing = f", {len(report.missing)} were not there" if report.missing else ""
    typer.echo(f"{index}: {target.value}: {len(report.deleted)} deleted{missing}")

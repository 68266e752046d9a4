"""``aladin index verify``."""

from __future__ import annotations

import typer

from service.commands.index.arguments import IndexArgument
from service.progress import stderr_progress


def verify(index: IndexArgument) -> None:
    """Compare every file of an index with its checksum.

    In: INDEX. Out: on stdout, what was compared; exit code 1 and, on stderr, the names of the
    files that are not as they were built.
    """
    from index.verify import verify_index

    with stderr_progress() as progress:
        report = verify_index(index, progress)
    generations = ", ".join(str(generation) for generation in report.generations)
    typer.echo(f"{index}: sound, {report.files} files, generations {generations}")

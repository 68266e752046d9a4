"""``aladin demo``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from aladin_service.commands.options import set_log_format
from aladin_service.commands.progress import stderr_progress
from aladin_service.commands.serve import HostOption, PortOption


def demo(
    out: Annotated[
        Path, typer.Option("--out", help="Folder of the demo; completed steps are not repeated.")
    ] = Path("aladin-demo"),
    serve: Annotated[
        bool, typer.Option("--serve/--no-serve", help="Serve the index after printing the table.")
    ] = True,
    host: HostOption = "127.0.0.1",
    port: PortOption = 8000,
) -> None:
    """Run the whole pipeline in a few minutes, without any download.

    In: nothing. Out: in the folder --out a data set of drawn scenes with captions, a network
    trained on them and an index of the test scenes; on stdout a table with the results of each way
    to search; then the HTTP service of the index, until stopped.
    """
    from aladin_service.demo import run_demo
    from aladin_service.reports.tables import metrics_table, print_table

    set_log_format()
    if serve:
        from aladin_service.http.server import check_address

        check_address(host, port)  # now, because training takes minutes
    with stderr_progress() as progress:
        result = run_demo(out, progress)
    print_table(metrics_table("test scenes", result.rows))
    if serve:
        from aladin_service.http.server import serve_index

        serve_index(result.index, host, port)
    else:
        typer.echo(f"search it: aladin search {result.index} TEXT", err=True)

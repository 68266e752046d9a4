"""``aladin help`` and ``aladin --version``."""

from __future__ import annotations

from typing import Annotated

import typer

DISTRIBUTION = "aladin-search"


def print_version(wanted: bool) -> None:
    """Print the version of the installed distribution, and end the command line."""
    if not wanted:
        return
    from importlib.metadata import version

    typer.echo(f"aladin {version(DISTRIBUTION)}")
    raise typer.Exit


VersionOption = Annotated[
    bool,
    typer.Option(
        "--version", is_eager=True, callback=print_version, help="Show the version and exit."
    ),
]


def help_(
    context: typer.Context,
    words: Annotated[
        list[str] | None,
        typer.Argument(metavar="COMMAND...", help="A command, such as: index build."),
    ] = None,
) -> None:
    """Show the help of a command."""
    root = context.find_root()
    root.command.main([*(words or ()), "--help"], prog_name=root.info_name)

"""The `aladin` command: the root of all sub-commands.

The modules of `aladin_service.commands` only declare options; what a command needs to run (torch,
faiss, fastapi) is imported when it runs, so that ``aladin --help`` answers at once.
"""

from __future__ import annotations

import gc
import logging
import sys
from collections.abc import Sequence
from typing import Annotated, Any

import typer

from aladin_service.commands import (
    convert,
    correct,
    demo,
    evaluate,
    export,
    index,
    key,
    mcp,
    photos,
    regions,
    search,
    serve,
    train,
)
from aladin_service.commands.help_style import CommandApp, Group
from aladin_service.failures import exit_code, one_line
from aladin_service.observe.logs import LogSetup, log_setup, log_to_stderr

# New objects until the interpreter searches for reference cycles. Modules are imported as commands
# need them; with Python's 700, a fifth of the CPU time of importing torch and transformers is spent
# on searches that find nothing.
_GC_THRESHOLD = 10_000


DISTRIBUTION = "aladin-search"


def _print_version(wanted: bool) -> None:
    if not wanted:
        return
    from importlib.metadata import version

    typer.echo(f"aladin {version(DISTRIBUTION)}")
    raise typer.Exit


class Root(Group):
    """A command group with one-line failure reports; tracebacks only on ``--debug``."""

    def main(self, args: Sequence[str] | None = None, *rest: Any, **options: Any) -> Any:
        """Run a command line; exits the process as every click command does."""
        words, debug = _take_debug(sys.argv[1:] if args is None else args)
        try:
            return super().main(words, *rest, **options)
        except Exception as error:
            if debug:
                raise
            _report(error)
            sys.exit(exit_code(error))


def _report(error: Exception) -> None:
    """Report in one line why a command failed, in its log format."""
    if log_setup().format == "json":
        logging.getLogger(__name__).error(one_line(error))
    else:
        typer.echo(f"error: {one_line(error)}", err=True)


def _take_debug(words: Sequence[str]) -> tuple[list[str], bool]:
    """Move ``--debug`` to the front: users append it to the command line that failed."""
    end = words.index("--") if "--" in words else len(words)
    rest = [word for word in words[:end] if word != "--debug"]
    debug = len(rest) < end
    return ["--debug"] * debug + rest + list(words[end:]), debug


def _dashes(option: str) -> str:
    """Allow option names with - and with _."""
    return option.replace("_", "-")


app = CommandApp(
    cls=Root,
    name="aladin",
    pretty_exceptions_enable=False,
    context_settings={
        "token_normalize_func": _dashes,
        "help_option_names": ["-h", "--help"],
    },
)
_PHOTOS, _INDEX, _TRAINING = "Photos", "Index and service", "Training"
app.command("photos", rich_help_panel=_PHOTOS)(photos.photos)
app.command("search", rich_help_panel=_PHOTOS)(search.search)
app.command("demo", rich_help_panel=_PHOTOS)(demo.demo)
app.add_typer(index.app, name="index", rich_help_panel=_INDEX)
app.command("serve", rich_help_panel=_INDEX)(serve.serve)
app.command("mcp", rich_help_panel=_INDEX)(mcp.mcp)
app.add_typer(key.app, name="key", rich_help_panel=_INDEX)
app.command("prepare", rich_help_panel=_INDEX)(demo.prepare)
app.command("train", rich_help_panel=_TRAINING)(train.train)
app.command("mine", rich_help_panel=_TRAINING)(train.mine)
app.command("compare", rich_help_panel=_TRAINING)(train.compare)
app.command("evaluate", rich_help_panel=_TRAINING)(evaluate.evaluate)
app.command("calibrate", rich_help_panel=_TRAINING)(evaluate.calibrate)
app.command("correct", rich_help_panel=_TRAINING)(correct.correct)
app.add_typer(convert.app, name="convert", rich_help_panel=_TRAINING)
app.add_typer(export.app, name="export", rich_help_panel=_TRAINING)
app.add_typer(regions.app, name="regions", rich_help_panel=_TRAINING)


@app.callback()
def root(
    debug: Annotated[
        bool, typer.Option("--debug", help="Show debug messages, and the traceback of a failure.")
    ] = False,
    version: Annotated[  # noqa: ARG001  its callback shows it
        bool,
        typer.Option(
            "--version", is_eager=True, callback=_print_version, help="Show the version and exit."
        ),
    ] = False,
) -> None:
    """Search photos with words and words with photos.

    Data goes to stdout, messages and progress to stderr. Exit code 0 is success, 1 a failed job,
    2 an error in the command line or in the data.
    """
    log_to_stderr(LogSetup(debug=debug))


@app.command("help", rich_help_panel=_PHOTOS)
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


def main() -> None:
    """Run the command line of this process."""
    gc.set_threshold(_GC_THRESHOLD)
    try:
        app()
    finally:
        # The process ends: without this, the interpreter first searches all objects of all imported
        # modules for reference cycles, which takes .4 s of CPU time if torch is among them.
        gc.freeze()

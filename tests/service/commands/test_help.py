"""The help of every command: what goes in and comes out, plain names, lines that fit; versions."""

from __future__ import annotations

import re
from dataclasses import dataclass
from importlib.metadata import version
from typing import Annotated, Any

import pytest
import typer
from annotated_types import Ge, Le
from pydantic import Field
from typer.main import get_command
from typer.testing import CliRunner, Result

from aladin_service.cli import app
from aladin_service.commands.flags import Flags, with_flags
from aladin_service.commands.help_style import CommandApp
from aladin_service.commands.options import parse_bytes


def run(*words: str, **variables: str) -> Result:
    environment = {"COLUMNS": "80", **variables}
    return CliRunner().invoke(app, list(words), env=environment, prog_name="aladin")


def every_command(command: Any, words: tuple[str, ...] = ()) -> list[tuple[tuple[str, ...], bool]]:
    within = getattr(command, "commands", {})
    found = [(words, bool(within))]
    for name, each in within.items():
        found += every_command(each, (*words, name))
    return found


def test_the_help_of_every_command_is_plain_and_says_what_goes_in_and_comes_out() -> None:
    commands = every_command(get_command(app))
    assert len(commands) > 30
    for words, is_group in commands:
        done = run(*words, "--help")
        assert done.exit_code == 0
        assert not re.search(r"[{][A-Z]|<\w+|<list|x>=|<=x", done.stdout), words
        assert all(len(line) <= 80 for line in done.stdout.splitlines()), words
        if is_group:  # the summaries of its commands fit into a line: none goes on below
            panels = done.stdout.partition("Options:\n")[2].split("\n\n")[1:]
            summaries = [line for panel in panels for line in panel.splitlines()[1:]]
            assert summaries and all(re.match(r"  \w.*(?<!\.\.\.)$", line) for line in summaries)
        elif words != ("help",):
            text = " ".join(done.stdout.split())
            assert "In: " in text and "Out: " in text, words


def test_commands_are_listed_in_three_groups() -> None:
    panels = run("--help").stdout.split("\n\n")[-3:]
    assert [panel.splitlines()[0] for panel in panels] == [
        "Photos:",
        "Index and service:",
        "Training:",
    ]
    listed = [line.split()[0] for panel in panels for line in panel.splitlines()[1:]]
    assert sorted(listed) == sorted(
        words[0] for words, _ in every_command(get_command(app))[1:] if len(words) == 1
    )


def test_the_version_is_that_of_the_distribution_and_a_shell_completes_commands() -> None:
    done = run("--version")
    assert (done.exit_code, done.stdout) == (0, f"aladin {version('aladin-search')}\n")
    assert "--install-completion" in run("--help").stdout
    variables = {"_ALADIN_COMPLETE": "complete_bash", "COMP_WORDS": "aladin ind", "COMP_CWORD": "1"}
    assert run(**variables).stdout.split() == ["index"]
    shown = run("help", "index", "info").stdout
    assert shown == run("index", "info", "--help").stdout
    assert shown.splitlines()[0] == "Usage: aladin index info [OPTIONS] INDEX"
    assert run("help").stdout == run("--help").stdout


@dataclass
class Settings:
    size: Annotated[int, Ge(2)] | None = None
    share: Annotated[Annotated[float, Le(1)] | None, Field(description="A share.")] = 0.5


def test_bounds_and_descriptions_of_fields_are_those_of_their_options() -> None:
    made = CommandApp()

    @made.command()
    @with_flags(given=lambda: Flags(Settings, {}))
    def command(given: Settings) -> None:
        typer.echo((given.size, given.share))

    def run(*words: str) -> Result:
        return CliRunner().invoke(made, list(words))

    shown = " ".join(run("--help").stdout.split())
    assert "--size N [at least 2]" in shown
    assert "--share X A share. [default: 0.5; at most 1" in shown
    assert run("--size", "3").stdout == "(3, 0.5)\n"
    assert run("--size", "1").exit_code == run("--share", "2").exit_code == 2


@pytest.mark.parametrize(
    ("text", "size"),
    [
        ("4096", 4096),
        ("8GiB", 8 * 2**30),
        ("1.5 GB", 1_500_000_000),
        (" 10KiB ", 10 * 1024),
        ("2TB", 2 * 10**12),
        ("7B", 7),
        *((text, None) for text in ("", "GiB", "8 gigs", "-1", "8GiBs", "1,5GB", "0", "0.4B")),
    ],
)
def test_sizes_are_read_as_people_write_them(text: str, size: int | None) -> None:
    if size is None:
        with pytest.raises(typer.BadParameter, match="expected"):
            parse_bytes(text)
    else:
        assert parse_bytes(text) == size

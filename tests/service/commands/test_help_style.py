"""The help: whole summaries, plain names of values, hidden aliases, versions."""

from __future__ import annotations

import re
import subprocess
import sys
from importlib.metadata import version

import pytest
from typer.main import get_command
from typer.testing import CliRunner, Result

from aladin_service.cli import app


def run(*words: str) -> Result:
    return CliRunner().invoke(app, list(words), env={"COLUMNS": "80"}, prog_name="aladin")


def every_command(command: object = None, words: tuple[str, ...] = ()) -> list[tuple[str, ...]]:
    """Return the words of every command and group."""
    command = command or get_command(app)
    found = [words]
    for name, each in getattr(command, "commands", {}).items():
        found += every_command(each, (*words, name))
    return found


COMMANDS = every_command()


@pytest.mark.parametrize("words", COMMANDS, ids=" ".join)
def test_help_uses_plain_names(words: tuple[str, ...]) -> None:
    done = run(*words, "--help")
    assert done.exit_code == 0
    assert not re.search(r"[{][A-Z]|<\w+|<list|x>=|<=x", done.stdout)
    assert all(len(line) <= 80 for line in done.stdout.splitlines())


@pytest.mark.parametrize("words", [(), ("convert",), ("index",), ("regions",), ("key",)])
def test_summaries_fit_into_a_line(words: tuple[str, ...]) -> None:
    text = run(*words, "--help").stdout.partition("Commands:\n")[2]
    assert text
    assert "..." not in text
    assert all(re.match(r"  \w", line) for line in text.splitlines())  # none goes on below


def test_usage_names_arguments_as_they_are() -> None:
    lines = {words: run(*words, "--help").stdout.splitlines()[0] for words in COMMANDS}
    assert lines["index", "info"] == "Usage: aladin index info [OPTIONS] INDEX"
    assert lines["search",] == "Usage: aladin search [OPTIONS] [INDEX] [TEXT]"


def test_a_default_and_a_range_are_in_one_pair_of_brackets() -> None:
    text = " ".join(run("serve", "--help").stdout.split())
    assert "--port N" in text
    assert "[default: 8000; 0 to 65535]" in text


def test_the_version_is_that_of_the_distribution() -> None:
    done = run("--version")
    assert (done.exit_code, done.stdout) == (0, f"aladin {version('aladin-search')}\n")


def test_help_is_a_command() -> None:
    assert run("help", "index", "info").stdout == run("index", "info", "--help").stdout
    assert run("help").stdout == run("--help").stdout
    unknown = run("help", "nonsense")
    assert unknown.exit_code == 2
    assert "No such command 'nonsense'" in unknown.stderr


def test_a_shell_completes_commands() -> None:
    assert "--install-completion" in run("--help").stdout
    environment = {
        "_ALADIN_COMPLETE": "complete_bash",
        "COMP_WORDS": "aladin ind",
        "COMP_CWORD": "1",
    }
    done = CliRunner().invoke(app, [], env=environment, prog_name="aladin")
    assert done.stdout.split() == ["index"]


@pytest.mark.parametrize(
    ("words", "absent"),
    [
        (["--help"], {"torch", "pydantic", "rich", "httpx"}),
        (["key", "list", "--keys", "none.json"], {"torch", "rich", "httpx"}),
        (["search", "--url", "http://127.0.0.1:1", "red"], {"torch", "numpy", "rich"}),
        (["search", "/nowhere", "red"], {"torch", "numpy", "rich"}),
        (["index", "info", "/nowhere"], {"torch", "numpy", "rich"}),
        (["train", "--list"], {"torch", "numpy"}),
        (["train", "nothing", "--out", "run"], {"torch", "numpy"}),
    ],
)
def test_a_light_command_imports_little(words: list[str], absent: set[str]) -> None:
    script = f"""
import sys
sys.argv = ["aladin", *{words!r}]
from aladin_service.cli import main
try:
    main()
except SystemExit:
    pass
print(*({absent!r} & set(sys.modules)), file=sys.stderr)
"""
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True
    )
    assert done.stderr.splitlines()[-1] == "", done.stderr

"""The root of the command line: help, exit codes, one clear line."""

from __future__ import annotations

import gc
import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from aladin_service import cli
from aladin_service.cli import app

ALADIN = Path(sys.executable).with_name("aladin")
STARTED_BY_PYTHON = {"__main__", "_distutils_hack", "_virtualenv", "sitecustomize"}
COMMANDS = [
    ["demo"],
    ["train"],
    ["evaluate"],
    ["mine"],
    ["compare"],
    ["index", "build"],
    ["index", "info"],
    ["index", "verify"],
    ["convert", "oscar"],
    ["convert", "aladin"],
    ["export", "onnx"],
    ["search"],
    ["serve"],
    ["mcp"],
    ["key", "add"],
    ["key", "list"],
    ["key", "remove"],
]


def test_the_interpreter_has_no_objects_to_search_for_cycles_at_exit(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(cli, "app", lambda: sys.exit(3))
    try:
        with pytest.raises(SystemExit):
            cli.main()
        assert gc.get_freeze_count() > 0
    finally:
        gc.unfreeze()


def test_help_loads_the_command_line_and_no_library_that_a_command_needs() -> None:
    # The time that it takes is that of its imports: these are counted, on a busy machine too.
    script = """
import sys
from aladin_service.cli import main
sys.argv = ["aladin", "--help"]
try:
    main()
finally:
    print(*{name.partition(".")[0] for name in sys.modules}, file=sys.stderr)
    print(len(sys.modules), file=sys.stderr)
"""
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True
    )
    for command in COMMANDS:
        assert command[0] in done.stdout
    loaded, count = done.stderr.splitlines()
    ours = {name for name in loaded.split() if name.startswith("aladin_")}
    assert ours == {"aladin_service", "aladin_network", "aladin_training"}
    libraries = set(loaded.split()) - sys.stdlib_module_names - ours - STARTED_BY_PYTHON
    assert libraries <= {"typer", "annotated_doc", "shellingham", "platformdirs", "rich"}
    assert int(count) < 600


def test_help_of_every_command_needs_no_torch_and_says_what_goes_in_and_comes_out() -> None:
    script = f"""
import sys
from typer.testing import CliRunner
from aladin_service import cli
from aladin_service.cli import app
for command in {COMMANDS!r}:
    text = CliRunner().invoke(app, [*command, "--help"]).stdout
    assert "In: " in text and "Out: " in text, (command, text)
heavy = {{"torch", "transformers", "faiss", "fastapi", "uvicorn"}} & set(sys.modules)
assert not heavy, heavy
"""
    subprocess.run([sys.executable, "-c", script], check=True)


@pytest.mark.parametrize(
    "words",
    [
        ["nonsense"],
        ["search"],
        ["search", "index", "--colour", "red"],
        ["search", "index", "dog", "-k", "0"],
        ["search", "index", "dog", "-k", "ten"],
        ["search", "index", "dog", "--fusion", "2"],
        ["search", "index", "dog", "--target", "sounds"],
        ["search", "index", "--image", "missing.jpg"],
        ["index", "build", "--images", "x"],
        ["serve", "missing"],
        ["train", "recipe.toml"],
    ],
)
def test_a_command_line_that_is_wrong_ends_with_two(words: list[str]) -> None:
    result = CliRunner().invoke(app, words)
    assert result.exit_code == 2
    assert result.stdout == ""
    assert result.stderr.splitlines()[-1].startswith("Error: ")


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["search", "{empty}", "dog"], "no index here"),
        (["search", "{empty}"], "expected exactly one of text, image, id, regions"),
        (["search", "{empty}", "dog", "--id", "x"], "got text and id"),
        (["search", "{empty}", "dog", "--filter", "{{"], "--filter: not JSON"),
        (["search", "{empty}", "dog", "--filter", "[1]"], "--filter: expected a JSON object"),
        (["index", "info", "{empty}"], "no index here"),
        (["index", "verify", "{empty}"], "no index here"),
        (["index", "build", "--model", "{empty}", "--out", "{empty}/x"], "got neither"),
        (["evaluate", "{empty}", "{empty}"], "not a checkpoint"),
        (["train", "{empty}/none.toml", "--out", "{empty}/run"], "no such recipe"),
    ],
)
def test_a_users_mistake_is_one_line_and_two(words: list[str], says: str, tmp_path: Path) -> None:
    result = CliRunner().invoke(app, [word.format(empty=tmp_path) for word in words])
    assert result.exit_code == 2
    assert result.stdout == ""
    (line,) = result.stderr.splitlines()
    assert line.startswith("error: ")
    assert says in line


@pytest.mark.parametrize("place", ["front", "end"])
def test_debug_shows_the_traceback_wherever_it_is_written(tmp_path: Path, place: str) -> None:
    words = ["index", "info", str(tmp_path)]
    line = ["--debug", *words] if place == "front" else [*words, "--debug"]
    result = subprocess.run([ALADIN, *line], capture_output=True, text=True, check=False)
    assert result.returncode == 1
    assert "Traceback" in result.stderr
    assert "IndexNotReadyError" in result.stderr
    assert "Traceback" not in CliRunner().invoke(app, words).stderr


def test_after_two_dashes_debug_is_a_word_to_search_for(tmp_path: Path) -> None:
    result = CliRunner().invoke(app, ["search", str(tmp_path), "--", "--debug"])
    assert result.exit_code == 2
    assert "no index here" in result.stderr


def test_the_service_starts_without_http_clients_agents_and_traces() -> None:
    script = """
import sys
from aladin_service.http.server import open_tracing
assert open_tracing(wanted=False) is None
heavy = {"httpx", "mcp", "torch", "pymilvus"} & set(sys.modules)
heavy |= {"opentelemetry.sdk", "opentelemetry.exporter"} & set(sys.modules)
assert not heavy, heavy
"""
    subprocess.run([sys.executable, "-c", script], check=True)

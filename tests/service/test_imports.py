"""What is imported where: nothing heavy before it is needed, in one process that forks for each."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

# Runs each statement in a fork, and writes the modules that it has loaded.
PROGRAM = """
import json, os, sys
cases, folder = json.loads(sys.argv[1]), sys.argv[2]
for name, statement in cases.items():
    if os.fork() == 0:
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        os.dup2(1, 2)
        failed = ""
        try:
            exec(statement, {"sys": sys})
        except SystemExit:
            pass
        except BaseException as error:
            failed = repr(error)
        with open(os.path.join(folder, name), "w") as file:
            json.dump([failed, sorted(sys.modules)], file)
        os._exit(0)
    os.wait()
"""


def command(line: str) -> str:
    return f"sys.argv = ['aladin', *{line.split()!r}]\nfrom aladin_service.cli import main\nmain()"


EVERY_HELP = """
from typer.testing import CliRunner
from aladin_service.cli import app
for line in ("demo", "train", "evaluate", "index build", "convert oscar", "search", "serve", "mcp"):
    assert CliRunner().invoke(app, [*line.split(), "--help"]).exit_code == 0
"""
WRONG_PATH = """
import aladin_search
try:
    aladin_search.open("/nowhere/index")
except aladin_search.IndexNotReadyError:
    pass
else:
    assert False
"""
NAMES = "import aladin_search as a\n[getattr(a, name) for name in a.__all__]\na.recipes()"
TRACING = """
from aladin_service.http.server import open_tracing
assert open_tracing(wanted=False) is None
"""
WITHOUT_MCP = """
sys.modules["mcp"] = None
import aladin_service.http.app, aladin_service.http.agents, aladin_service.commands.mcp
"""
LIBRARIES = "torch transformers faiss numpy PIL sklearn typer fastapi httpx"
CASES: dict[str, tuple[str, str]] = {
    "help": (command("--help"), "torch pydantic httpx numpy"),
    "help of commands": (EVERY_HELP, "torch transformers faiss fastapi uvicorn"),
    "keys": (command("key list --keys none.json"), "torch rich httpx"),
    "a service is asked": (
        command("search --url http://127.0.0.1:1 red"),
        "torch numpy faiss fastapi PIL rich",
    ),
    "no index to search": (command("search /nowhere red"), "torch faiss rich"),
    "no index to describe": (command("index info /nowhere"), "torch faiss rich"),
    "recipes": (command("train --list"), "torch numpy"),
    "no recipe": (command("train nothing --out run"), "torch numpy"),
    "the library": ("import aladin_search", LIBRARIES),
    "its names": (NAMES, LIBRARIES),
    "a wrong path": (WRONG_PATH, "torch transformers"),
    "the client": ("import aladin_service.client", LIBRARIES.replace("httpx", "uvicorn")),
    "a service without traces": (
        TRACING,
        "httpx mcp torch pymilvus opentelemetry.sdk opentelemetry.exporter",
    ),
    "a service without agents": (WITHOUT_MCP, "aladin_service.mcp.tools"),
}


@pytest.fixture(scope="module")
def loaded(tmp_path_factory: pytest.TempPathFactory) -> dict[str, set[str]]:
    """The modules that each of `CASES` leaves loaded."""
    folder, found = tmp_path_factory.mktemp("imports"), dict[str, set[str]]()
    statements = json.dumps({name: statement for name, (statement, _) in CASES.items()})
    subprocess.run([sys.executable, "-c", PROGRAM, statements, str(folder)], check=True)
    for name in CASES:
        failed, modules = json.loads((folder / name).read_text())
        assert failed == "", name
        found[name] = set(modules)
    return found


@pytest.mark.parametrize("name", CASES)
def test_nothing_heavy_is_imported_before_it_is_needed(
    loaded: dict[str, set[str]], name: str
) -> None:
    assert loaded[name] & set(CASES[name][1].split()) == set()


def test_help_loads_the_command_line_and_no_library_that_a_command_needs(
    loaded: dict[str, set[str]],
) -> None:
    # The time that it takes is that of its imports: these are counted, on a busy machine too.
    names = {name.partition(".")[0] for name in loaded["help"]}
    ours = {name for name in names if name.startswith("aladin_")}
    assert ours == {"aladin_service", "aladin_network", "aladin_training"}
    started = {"__main__", "_distutils_hack", "_virtualenv", "sitecustomize"}
    libraries = names - sys.stdlib_module_names - ours - started
    light = {"typer", "annotated_doc", "shellingham", "platformdirs", "rich", "typing_extensions"}
    assert libraries <= light
    assert len(loaded["help"]) < 600


def test_the_modules_run_the_command() -> None:
    for module in ("aladin_search", "aladin_service"):
        line = [sys.executable, "-m", module, "--version"]
        done = subprocess.run(line, capture_output=True, text=True, check=True)
        assert done.stdout.startswith("aladin ")


@pytest.mark.parametrize("place", ["front", "end"])
def test_debug_shows_the_traceback_wherever_it_is_written(tmp_path: Path, place: str) -> None:
    words = ["index", "info", str(tmp_path)]
    line = ["--debug", *words] if place == "front" else [*words, "--debug"]
    aladin = Path(sys.executable).with_name("aladin")
    result = subprocess.run([aladin, *line], capture_output=True, text=True, check=False)
    assert result.returncode == 1
    assert "Traceback" in result.stderr and "IndexNotReadyError" in result.stderr

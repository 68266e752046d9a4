"""Importing `aladin_search` is quick: nothing heavy is imported before it is needed."""

from __future__ import annotations

import subprocess
import sys

HEAVY = {"torch", "transformers", "faiss", "numpy", "PIL", "sklearn", "typer", "fastapi", "httpx"}


def imported(statement: str) -> set[str]:
    """Return the heavy modules that a new process has after a statement."""
    script = f"import sys\n{statement}\nprint(*({HEAVY!r} & set(sys.modules)))"
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True
    )
    return set(done.stdout.split())


def test_the_import_loads_nothing_heavy() -> None:
    assert imported("import aladin_search") == set()


def test_every_public_name_is_there_without_torch() -> None:
    statement = "import aladin_search as a\n[getattr(a, name) for name in a.__all__]\na.recipes()"
    assert imported(statement) == set()


def test_a_wrong_path_is_named_before_torch_is_imported() -> None:
    statement = (
        "import aladin_search\n"
        "try: aladin_search.open('/nowhere/index')\n"
        "except aladin_search.IndexNotReadyError: pass"
    )
    assert imported(statement) & {"torch", "transformers"} == set()


def test_the_module_runs_the_command() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "aladin_search", "--version"], capture_output=True, text=True
    )
    assert done.returncode == 0
    assert done.stdout.startswith("aladin ")

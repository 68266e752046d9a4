"""docs/PYTHON.md names what exists, and the notebook beside it runs."""

from __future__ import annotations

import ast
import inspect
import json
import re
from pathlib import Path
from typing import Any

import pytest

import aladin_search

DOCS = Path(__file__).parents[2] / "docs"


class Notebook:
    """The cells of a notebook, run one after the other in one namespace.

    Attributes:
        names: Variables of the notebook.
        html: HTML of the values that cells end with, by the code of the cell.
        values: Those values themselves.
    """

    def __init__(self, file: Path) -> None:
        self.names: dict[str, Any] = {}
        self.html: dict[str, str] = {}
        self.values: dict[str, Any] = {}
        self.notebook = json.loads(file.read_text(encoding="utf-8"))
        self.codes = [
            "".join(cell["source"])
            for cell in self.notebook["cells"]
            if cell["cell_type"] == "code"
        ]

    def run(self, **changes: object) -> None:
        """Run all cells; an assignment to a name in `changes` takes that value instead."""
        for code in self.codes:
            tree = ast.parse(code)
            for statement in tree.body:
                if isinstance(statement, ast.Assign) and isinstance(statement.targets[0], ast.Name):
                    name = statement.targets[0].id
                    if name in changes:
                        statement.value = ast.copy_location(
                            ast.Constant(changes[name]), statement.value
                        )
            last = tree.body.pop() if isinstance(tree.body[-1], ast.Expr) else None
            exec(compile(tree, "notebook", "exec"), self.names)
            if last is not None:
                value = eval(compile(ast.Expression(last.value), "notebook", "eval"), self.names)
                self.values[code] = value
                if hasattr(value, "_repr_html_"):
                    self.html[code] = value._repr_html_()


def test_the_notebook_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    notebook = Notebook(DOCS / "python.ipynb")
    notebook.run(epochs=1)
    (index,) = (
        value for value in notebook.values.values() if isinstance(value, aladin_search.Index)
    )
    assert index.path == Path("index")
    searches = [
        value for value in notebook.values.values() if isinstance(value, aladin_search.Hits)
    ]
    assert [len(hits) for hits in searches] == [3, 2, 2, 2]
    assert all("colour" in hit.metadata for hit in searches[0])
    assert {hit.metadata["colour"] for hit in searches[2]} <= {"green", "black"}
    shown = list(notebook.html.values())
    assert [html.count("<img") for html in shown] == [3, 0, 2, 2]  # the second finds captions
    assert notebook.names["best"].evidence


def test_the_notebook_has_no_stored_results() -> None:
    notebook = Notebook(DOCS / "python.ipynb").notebook
    assert notebook["nbformat"] == 4
    for cell in notebook["cells"]:
        assert cell.get("outputs", []) == []
        assert cell.get("execution_count") is None


def test_the_document_calls_what_exists() -> None:
    text = (DOCS / "PYTHON.md").read_text(encoding="utf-8")
    blocks = re.findall(r"```python\n(.*?)```", text, re.DOTALL)
    assert len(blocks) >= 5
    called: set[str] = set()
    for block in blocks:
        assert len(block.splitlines()) <= 6, block
        for call in (node for node in ast.walk(ast.parse(block)) if isinstance(node, ast.Call)):
            if not isinstance(call.func, ast.Attribute) or not isinstance(
                call.func.value, ast.Name
            ):
                continue
            owner = {"aladin_search": aladin_search, "index": aladin_search.Index}.get(
                call.func.value.id
            )
            if owner is None:
                continue
            function = getattr(owner, call.func.attr)
            called.add(call.func.attr)
            parameters = inspect.signature(function).parameters
            if not any(each.kind is each.VAR_KEYWORD for each in parameters.values()):
                assert {word.arg for word in call.keywords} <= set(parameters), block
    assert {"build", "open", "search", "add", "delete", "train", "evaluate", "recipes"} <= called

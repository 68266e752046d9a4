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


NOTEBOOK = json.loads((DOCS / "python.ipynb").read_text(encoding="utf-8"))


def run_notebook(**changes: object) -> tuple[dict[str, Any], list[Any]]:
    """Run all cells, with values of names that are changed; return names, and values of cells."""
    names, values = dict[str, Any](), list[Any]()
    for cell in NOTEBOOK["cells"]:
        if cell["cell_type"] != "code":
            continue
        tree = ast.parse("".join(cell["source"]))
        for each in tree.body:
            name = ast.unparse(each.targets[0]) if isinstance(each, ast.Assign) else ""
            if isinstance(each, ast.Assign) and name in changes:
                each.value = ast.copy_location(ast.Constant(changes[name]), each.value)
        last = tree.body.pop() if isinstance(tree.body[-1], ast.Expr) else None
        exec(compile(tree, "notebook", "exec"), names)
        if last is not None:
            values.append(eval(compile(ast.Expression(last.value), "notebook", "eval"), names))
    return names, values


def test_the_notebook_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    names, values = run_notebook(epochs=1)
    (index,) = (value for value in values if isinstance(value, aladin_search.Index))
    assert index.path == Path("index")
    searches = [value for value in values if isinstance(value, aladin_search.Hits)]
    assert [len(hits) for hits in searches] == [3, 2, 2, 2]
    assert all("colour" in hit.metadata for hit in searches[0])
    assert {hit.metadata["colour"] for hit in searches[2]} <= {"green", "black"}
    shown = [value._repr_html_() for value in values if hasattr(value, "_repr_html_")]
    assert [html.count("<img") for html in shown] == [3, 0, 2, 2]  # the second finds captions
    assert names["best"].evidence


def test_the_notebook_has_no_stored_results() -> None:
    assert not any(cell.get("outputs") or cell.get("execution_count") for cell in NOTEBOOK["cells"])


def test_the_document_calls_what_exists() -> None:
    text = (DOCS / "PYTHON.md").read_text(encoding="utf-8")
    blocks = re.findall(r"```python\n(.*?)```", text, re.DOTALL)
    assert len(blocks) >= 5
    owners: dict[str, Any] = {"aladin_search": aladin_search, "index": aladin_search.Index}
    called: set[str] = set()
    for block in blocks:
        assert len(block.splitlines()) <= 6, block
        for call in (node for node in ast.walk(ast.parse(block)) if isinstance(node, ast.Call)):
            owner, _, name = ast.unparse(call.func).partition(".")
            if owner not in owners or "." in name:
                continue
            function = getattr(owners[owner], name)
            called.add(name)
            parameters = inspect.signature(function).parameters
            if not any(each.kind is each.VAR_KEYWORD for each in parameters.values()):
                assert {word.arg for word in call.keywords} <= set(parameters), block
    assert {"build", "open", "search", "add", "delete", "train", "evaluate", "recipes"} <= called

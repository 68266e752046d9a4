"""Files count for the capability whose folder they are in, tests for the one that they mirror."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from benchmarks.lib.weight import Weight, capability, weights


@pytest.mark.parametrize(
    ("file", "name"),
    [
        ("aladin/aladin_network/heads/matching.py", "aladin/heads"),
        ("tests/aladin/heads/test_matching.py", "aladin/heads"),
        ("index/aladin_index/engines/rows.py", "index/engines"),
        ("service/aladin_search/index.py", "service"),
        ("benchmarks/search/rerank.py", "benchmarks/search"),
        ("tests/conftest.py", "tests"),
        ("README.md", "."),
    ],
)
def test_a_file_belongs_to_a_capability(file: str, name: str) -> None:
    assert capability(Path(file)) == name


def test_lines_are_counted_by_kind_and_by_change(tmp_path: Path) -> None:
    files = {
        "aladin/aladin_network/heads/a.py": '"""One.\n\nTwo.\n"""\nx = 1\n',
        "tests/aladin/heads/test_a.py": "assert 1\nassert 2\n",
        "service/aladin_service/page/a.js": "f();\n",
        "docs/A.md": "three plain words\n",
        "docs/a.toml": "a = 1\n",
        "docs/a.png": "no text",
    }
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    git = ["git", "-C", str(tmp_path), "-c", "user.name=a", "-c", "user.email=a@a.example"]
    subprocess.run([*git, "init", "-q"], check=True)
    subprocess.run([*git, "add", "."], check=True)
    subprocess.run([*git, "commit", "-qm", "a"], check=True)
    (tmp_path / "docs/a.toml").write_text("a = 2\nb = 3\n")
    assert weights(tmp_path, since="HEAD") == {
        "aladin/heads": Weight(code=1, docstrings=4, tests=2),
        "docs": Weight(data=2, words=3, added=2, removed=1),
        "service/page": Weight(page=1),
    }

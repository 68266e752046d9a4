"""The documents name files, links, modules and commands that exist."""

from __future__ import annotations

import re
import subprocess
from importlib.util import find_spec
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
DOCUMENTS = [
    "README.md",
    "CONTRIBUTING.md",
    "benchmarks/RESULTS.md",
    "docs/CLUSTER.md",
    "docs/DATA.md",
    "docs/INDEX.md",
    "docs/PHOTOS.md",
    "docs/SCALE.md",
    "docs/PYTHON.md",
    "docs/SEARCH.md",
    "docs/INTEGRATIONS.md",
    "docs/MCP.md",
    "service/SERVING.md",
    "training/BACKBONES.md",
    "training/FLICKR8K.md",
    "training/PAPERS.md",
]
README_WORDS = 1550
TREES = {"README.md": "What is where", "CONTRIBUTING.md": "Structure"}


def read(name: str) -> str:
    return (ROOT / name).read_text(encoding="utf-8")


def anchors(text: str) -> set[str]:
    """Return the anchors of a document's headings, as GitHub makes them."""
    titles = re.findall(r"^#+ (.*)$", text, re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in titles}


def test_the_readme_is_short() -> None:
    assert len(re.findall(r"\S*\w\S*", read("README.md"))) <= README_WORDS


@pytest.mark.parametrize("name", [*DOCUMENTS, "training/LOG.md", "CHANGELOG.md"])
def test_links_lead_somewhere(name: str) -> None:
    text = read(name)
    for target in re.findall(r"\]\(([^)\s]+)\)", text):
        if target.startswith(("http://", "https://")):
            continue
        path, _, anchor = target.partition("#")
        file = (ROOT / name).parent / path if path else ROOT / name
        assert file.exists(), target
        if anchor:
            assert anchor in anchors(file.read_text(encoding="utf-8")), target


def tree_of(name: str) -> str:
    (tree,) = re.findall(rf"## {TREES[name]}\n[^#]*?```\n(.*?)```", read(name), re.DOTALL)
    return tree


@pytest.mark.parametrize("name", TREES)
def test_the_tree_of_a_document_is_there(name: str) -> None:
    tree = tree_of(name)
    parent = ROOT
    for line in tree.splitlines():
        # Names end where two spaces or the column of descriptions begin.
        indent = len(line) - len(line.lstrip())
        names = re.match(r"(?:[\w./]+(?: |$))+", line[indent:].split("  ")[0] + " ")
        assert names is not None, line
        found = [name for name in names[0].split() if name.endswith("/") or "." in name]
        assert found, line
        if indent == 0:
            parent = ROOT / found[0]
            assert parent.is_dir(), line
        else:
            for name in found:
                assert (parent / name).exists(), f"{parent.name}: {name}"


def test_every_folder_of_the_packages_is_in_the_contributors_tree() -> None:
    named = set(re.findall(r"(\w+)/", tree_of("CONTRIBUTING.md")))
    listed = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True)
    if listed.returncode:
        pytest.skip("not a checkout of git")
    packages = ("aladin_network", "aladin_training", "aladin_index", "aladin_service")
    for path in listed.stdout.splitlines():
        parts = path.split("/")
        if len(parts) > 3 and parts[1] in packages:
            assert parts[2] in named, path


@pytest.mark.parametrize("name", DOCUMENTS)
def test_modules_and_files_named_in_code_exist(name: str) -> None:
    text = read(name)
    for module in re.findall(r"python -m (benchmarks\.[\w.]+|aladin_\w+)", text):
        assert find_spec(module.rstrip(".")) is not None, module
    folders = "aladin|training|index|service|benchmarks|tests|docs|docker"
    for path in re.findall(rf"`((?:{folders})/[\w./-]+\.\w+)`", text):
        if not re.search(r"NAME|/secrets/|\.env$", path):  # made by commands
            assert (ROOT / path).exists(), path


def test_the_python_of_the_readme_runs() -> None:
    blocks = re.findall(r"```python\n(.*?)```", read("README.md"), re.DOTALL)
    assert blocks
    for block in blocks:
        compile(block, "README.md", "exec")
        for line in block.splitlines():
            if line.startswith(("from ", "import ")):
                exec(line, {})

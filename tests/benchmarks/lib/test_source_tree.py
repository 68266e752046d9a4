"""Each rule finds the places that break it, and only those."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.lib.source_tree import PACKAGES, SourceTree

PROTOCOL = """
class Store(Protocol):
    name: str
    def get(self): ...

class Files:
    name: str
    def get(self): ...

class Half:
    name: str
"""
DOCSTRING = '''"""A module.

Note: of no interest.
"""


def f(a, b, c, d):
    """Do it.

    Args:
        a: of something.
        b: A number, or None: of course
            of a continued line.
        c: Number of things: as many as
            of which there are some.
        *d: whose names.

    Raises:
        ValueError: If `a` is wrong.
    """
'''


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """An empty tree with the folders of all packages."""
    for area, package in PACKAGES.items():
        write(tmp_path, f"{area}/{package}/__init__.py", "")
    (tmp_path / "hatch_build.py").write_text("")
    return tmp_path


def write(root: Path, file: str, text: str) -> None:
    path = root / file
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def test_programs_count_and_tests_do_not(root: Path) -> None:
    for file in ("tests/test_it.py", "benchmarks/lib/it.py", "docker/it.py"):
        write(root, file, "x = 1\n")
    write(root, "index/aladin_index/open.py", "x = 1\n" * 81)
    tree = SourceTree(root)
    files = {file.file for file in tree.files if not file.file.endswith("__init__.py")}
    loose = "index/aladin_index/open.py"
    assert files == {"hatch_build.py", "benchmarks/lib/it.py", "docker/it.py", loose}
    assert set(tree.modules) == {*PACKAGES.values(), "benchmarks.lib.it", "aladin_index.open"}
    assert (tree.loose_modules()["aladin_index"], tree.loose_modules()["aladin_service"]) == (
        [loose],
        [],
    )
    assert [place.file for place in tree.long_files(80)] == [loose]
    assert tree.long_files(81) == []


@pytest.mark.parametrize(
    "back",
    [
        "from aladin_index.a import x",
        "from aladin_index.a.x import f",
        "def f():\n    import aladin_index.a.x",
        "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from aladin_index.a import x",
    ],
)
def test_folders_that_import_each_other_are_a_cycle(root: Path, back: str) -> None:
    write(root, "index/aladin_index/a/x.py", "from aladin_index.b.y import g")
    write(root, "index/aladin_index/b/y.py", "from aladin_index.c import z")
    write(root, "index/aladin_index/c/z.py", "import json")
    write(root, "index/aladin_index/d.py", "from aladin_index.a import x")
    assert SourceTree(root).folder_cycles() == []
    write(root, "index/aladin_index/c/z.py", back)
    (cycle,) = SourceTree(root).folder_cycles()
    assert (cycle.parent, cycle.members) == ("aladin_index", ["a", "b", "c"])
    assert {(each.importer, each.imported) for each in cycle.imports} == {
        ("aladin_index.a.x", "aladin_index.b.y"),
        ("aladin_index.b.y", "aladin_index.c.z"),
        ("aladin_index.c.z", "aladin_index.a.x"),
    }


def test_isinstance_may_not_ask_for_an_implementation_of_a_protocol(root: Path) -> None:
    write(root, "index/aladin_index/a.py", PROTOCOL)
    write(
        root,
        "service/aladin_service/b.py",
        "isinstance(x, Half)\nisinstance(x, int | Files)\nisinstance(x, a.Files)\n",
    )
    assert [str(place) for place in SourceTree(root).checks_of_implementations()] == [
        "service/aladin_service/b.py:2: isinstance of Files",
        "service/aladin_service/b.py:3: isinstance of Files",
    ]


def test_a_data_class_mirrors_another_that_has_most_of_its_fields(root: Path) -> None:
    for file, name, fields in (("a", "Full", "abc"), ("b", "Most", "abd"), ("c", "Other", "axy")):
        lines = [f"class {name}:", *(f"    {field}: int" for field in fields)]
        write(root, f"index/aladin_index/{file}.py", "\n".join(lines))
    tree = SourceTree(root)
    assert [str(place) for place in tree.mirroring_classes(0.6, 3)] == [
        "index/aladin_index/a.py:1: Full mirrors Most",
        "index/aladin_index/b.py:1: Most mirrors Full",
    ]
    assert tree.mirroring_classes(0.7, 3) == []
    assert tree.mirroring_classes(0.6, 4) == []


def test_a_small_module_needs_two_importers(root: Path) -> None:
    for file in ("one", "two", "named", "losses/plugged"):
        write(root, f"index/aladin_index/{file}.py", "x = 1\n")
    write(root, "index/aladin_index/large.py", "x = 1\n" * 80)
    write(root, "service/aladin_service/cli.py", "from aladin_index import one, two")
    write(
        root,
        "benchmarks/b.py",
        "from aladin_index.two import x\nfrom aladin_index import named\nMODULES = ['losses']\n",
    )
    write(root, "benchmarks/c.py", "COMMANDS = {'b': 'aladin_index.named:x'}\n")
    places = SourceTree(root).small_modules(80, ["losses"])
    assert [str(place) for place in places] == [
        "index/aladin_index/one.py:1: 1 lines, imported by aladin_service.cli alone"
    ]


def test_entries_that_begin_with_a_preposition_dangle(root: Path) -> None:
    write(root, "index/aladin_index/a.py", DOCSTRING)
    places = SourceTree(root).dangling_entries()
    assert [(place.line, place.what) for place in places] == [
        (11, "a: of something."),
        (12, "b: A number, or None: of course"),
        (16, "*d: whose names."),
    ]

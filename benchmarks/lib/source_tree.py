"""The Python files of this repository outside the tests: sizes, imports, functions, docstrings."""

from __future__ import annotations

import ast
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import NamedTuple

PACKAGES = {
    "aladin": "aladin_network",
    "training": "aladin_training",
    "index": "aladin_index",
    "service": "aladin_service",
}
# Packages beside the main package of a folder.
_FURTHER_PACKAGES = ("aladin_search",)
_PROGRAMS = ("benchmarks", "docker")
_ROOT_FILES = ("hatch_build.py",)
_DOTTED_NAME = re.compile(r"^[a-z_]\w*(\.\w+)+(:\w+)?$")

_SECTION = re.compile(r"^(\s*)(Args|Attributes|Returns|Raises|Yields):$")
_ENTRY = re.compile(r"^\s+(?P<name>\*{0,2}\w+(?:, \*{0,2}\w+)*): (?P<text>.*)$")
_DANGLING = re.compile(r"^(of|that|whose|by|to|with|where|in|as|from)\b")
_NONE_ENTRY = re.compile(r"(^|[^`\w])None: ")


class Place(NamedTuple):
    """A place in a source file that breaks a rule.

    Attributes:
        file: Path from the root of the repository.
        line: Line number, counted from 1.
        what: Description of the place, for example a function's name and length.
    """

    file: str
    line: int
    what: str

    def __str__(self) -> str:
        """Format the place as an editor opens it."""
        return f"{self.file}:{self.line}: {self.what}"


class Import(NamedTuple):
    """An import of one module of this repository by another.

    Attributes:
        importer: Dotted name of the importing module.
        imported: Dotted name of the imported module.
        line: Line of the import in the importing module.
    """

    importer: str
    imported: str
    line: int


class FolderCycle(NamedTuple):
    """Modules and folders of one folder that import each other in a circle.

    Attributes:
        parent: Dotted name of the folder that holds them.
        members: Names in the circle, sorted.
        imports: Imports between the members.
    """

    parent: str
    members: list[str]
    imports: list[Import]


@dataclass(frozen=True)
class SourceFile:
    """A parsed source file.

    Attributes:
        file: Path from the root of the repository.
        area: Top-level folder, or the file's own name in the root.
        module: Dotted name by which it is imported, or None if it is a program of its own.
        text: Source code.
    """

    file: str
    area: str
    module: str | None
    text: str

    @cached_property
    def tree(self) -> ast.Module:
        """Syntax tree of the file."""
        return ast.parse(self.text)

    @cached_property
    def nodes(self) -> list[ast.AST]:
        """All nodes of the syntax tree."""
        return list(ast.walk(self.tree))

    @cached_property
    def lines(self) -> int:
        """Number of lines."""
        return len(self.text.splitlines())

    @property
    def is_entry_point(self) -> bool:
        """Whether the file is a package's `__init__`, or is run as a program."""
        name = Path(self.file).name
        return name in ("__init__.py", "__main__.py", "cli.py") or "__main__" in self.text


class SourceTree:
    """All Python files of the repository outside the tests."""

    def __init__(self, root: Path) -> None:
        """Read and parse the files.

        Args:
            root: Root of the repository.
        """
        self.root = root
        self.files = list(_read(root))
        self.modules = {file.module: file for file in self.files if file.module is not None}

    @cached_property
    def imports(self) -> list[Import]:
        """Imports between the repository's modules, wherever they occur in a file."""
        return [
            Import(importer, imported, line)
            for importer, file in self.modules.items()
            for imported, line in _imports(file.nodes, self.modules)
            if imported != importer
        ]

    def loose_modules(self) -> dict[str, list[str]]:
        """List the modules at the top level of each package, by package."""
        return {
            package: sorted(
                file.file
                for file in self.files
                if Path(file.file).parent == Path(area, package)
                and Path(file.file).name not in ("__init__.py", "__main__.py")
            )
            for area, package in PACKAGES.items()
        }

    def folder_cycles(self) -> list[FolderCycle]:
        """Find the circles among the modules and folders of each folder.

        All imports count: those inside functions and those for type checkers alone, too.
        """
        levels: dict[str, list[tuple[str, str, Import]]] = defaultdict(list)
        for each in self.imports:
            importer, imported = each.importer.split("."), each.imported.split(".")
            shared = 0
            while importer[shared : shared + 1] == imported[shared : shared + 1] != []:
                shared += 1
            if 0 < shared < min(len(importer), len(imported)):
                parent = ".".join(importer[:shared])
                levels[parent].append((importer[shared], imported[shared], each))
        cycles: list[FolderCycle] = []
        for parent, edges in sorted(levels.items()):
            graph: dict[str, set[str]] = defaultdict(set)
            for importer, imported, _ in edges:
                graph[importer].add(imported)
            for members in _circles(graph):
                inside = [
                    each
                    for importer, imported, each in edges
                    if importer in members and imported in members
                ]
                cycles.append(FolderCycle(parent, sorted(members), inside))
        return cycles

    def checks_of_implementations(self) -> list[Place]:
        """List the calls of `isinstance` with a class that implements a Protocol of this tree.

        A class implements a Protocol of at least two members if it has all of them itself.
        """
        classes = [
            node for file in self.files for node in file.nodes if isinstance(node, ast.ClassDef)
        ]
        protocols = {node.name: _members(node) for node in classes if _is_protocol(node)}
        implementing = {
            node.name
            for node in classes
            if node.name not in protocols
            and any(len(named) > 1 and named <= _members(node) for named in protocols.values())
        }
        return [
            Place(file.file, node.lineno, f"isinstance of {name}")
            for file in self.files
            for node in file.nodes
            if isinstance(node, ast.Call) and ast.unparse(node.func) == "isinstance"
            for name in sorted(set(re.findall(r"\w+", ast.unparse(node.args[1]))) & implementing)
        ]

    def mirroring_classes(self, share: float, least: int) -> list[Place]:
        """List the data classes of the packages whose fields mostly stand in another one, too.

        Args:
            share: Share of a class's own fields that the other class has.
            least: Number of own fields from which on a class counts.
        """
        fields = [
            (file, node, names)
            for file in self.files
            if file.area in PACKAGES
            for node in file.nodes
            if isinstance(node, ast.ClassDef) and not _is_protocol(node)
            if len(names := _fields(node)) >= least
        ]
        return [
            Place(file.file, node.lineno, f"{node.name} mirrors {most.name}")
            for file, node, names in fields
            for most, shared in [
                max(
                    (
                        (other, len(names & named))
                        for _, other, named in fields
                        if other is not node
                    ),
                    key=lambda pair: pair[1],
                )
            ]
            if shared >= share * len(names)
        ]

    def long_files(self, limit: int) -> list[Place]:
        """List the files of more than `limit` lines."""
        return [
            Place(file.file, 1, f"{file.lines} lines") for file in self.files if file.lines > limit
        ]

    def small_modules(self, limit: int, plug_ins: Iterable[str]) -> list[Place]:
        """List the modules that are small and have at most one importer outside the tests.

        Args:
            limit: Number of lines from which on a module is not small.
            plug_ins: Names of folders whose modules are found by their place, and are exempt.
        """
        importers: dict[str, set[str]] = defaultdict(set)
        for each in self.imports:
            importers[each.imported].add(each.importer)
        for file in self.files:  # modules that are imported by their dotted name
            for name in _dotted_names(file.nodes):
                if name in self.modules and name != file.module:
                    importers[name].add(file.file)
        exempt = set(plug_ins)
        return [
            Place(file.file, 1, f"{file.lines} lines, {_named(importers[module])}")
            for module, file in self.modules.items()
            if file.area in PACKAGES
            and file.lines < limit
            and len(importers[module]) <= 1
            and not file.is_entry_point
            and exempt.isdisjoint(Path(file.file).parts)
        ]

    def dangling_entries(self) -> list[Place]:
        """List docstring entries that begin with a dangling preposition, or say ``None:``."""
        return [
            Place(file.file, line, entry)
            for file in self.files
            for line, entry in _dangling_entries(file.nodes)
        ]


def _is_protocol(node: ast.ClassDef) -> bool:
    return any(re.match(r"(typing\.)?Protocol\b", ast.unparse(base)) for base in node.bases)


def _members(node: ast.ClassDef) -> set[str]:
    named = {each.name for each in node.body if isinstance(each, ast.FunctionDef)}
    return {*named, *_fields(node)} - {"__init__"}


def _fields(node: ast.ClassDef) -> set[str]:
    return {
        each.target.id
        for each in node.body
        if isinstance(each, ast.AnnAssign)
        and isinstance(each.target, ast.Name)
        and not each.target.id.startswith("_")
        and not ast.unparse(each.annotation).startswith("ClassVar")
    }


def _read(root: Path) -> Iterator[SourceFile]:
    for area, package in PACKAGES.items():
        folder = root / area
        for path in sorted(folder.rglob("*.py")):
            parts = path.relative_to(folder).with_suffix("").parts
            module = None
            if parts[0] in (package, *_FURTHER_PACKAGES):
                module = ".".join(parts[:-1] if parts[-1] == "__init__" else parts)
            yield _parsed(root, path, area, module)
    for area in _PROGRAMS:
        for path in sorted((root / area).rglob("*.py")):
            parts = path.relative_to(root).with_suffix("").parts
            name = ".".join(parts[:-1] if parts[-1] == "__init__" else parts)
            yield _parsed(root, path, area, name if area == "benchmarks" else None)
    for name in _ROOT_FILES:
        yield _parsed(root, root / name, name, None)


def _parsed(root: Path, path: Path, area: str, module: str | None) -> SourceFile:
    file = path.relative_to(root).as_posix()
    return SourceFile(file, area, module, path.read_text(encoding="utf-8"))


def _imports(nodes: list[ast.AST], modules: Mapping[str, object]) -> Iterator[tuple[str, int]]:
    for node in nodes:
        if isinstance(node, ast.Import):
            yield from ((name.name, node.lineno) for name in node.names if name.name in modules)
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            for name in node.names:
                full = f"{node.module}.{name.name}"
                if full in modules:
                    yield full, node.lineno
                elif node.module in modules:
                    yield node.module, node.lineno


def _dotted_names(nodes: list[ast.AST]) -> Iterator[str]:
    for node in nodes:
        value = node.value if isinstance(node, ast.Constant) else None
        if isinstance(value, str) and _DOTTED_NAME.match(value):
            yield value.split(":")[0]


def _circles(graph: Mapping[str, set[str]]) -> list[set[str]]:
    """Find the strongly connected components of more than one node."""
    reachable: dict[str, set[str]] = {}
    for start in graph:
        seen: set[str] = set()
        waiting = list(graph[start])
        while waiting:
            node = waiting.pop()
            if node not in seen:
                seen.add(node)
                waiting.extend(graph.get(node, ()))
        reachable[start] = seen
    circles: list[set[str]] = []
    for node in sorted(graph):
        circle = {other for other in reachable[node] if node in reachable.get(other, ())}
        if len(circle) > 1 and circle not in circles:
            circles.append(circle)
    return circles


def _named(importers: set[str]) -> str:
    return f"imported by {', '.join(sorted(importers))} alone" if importers else "never imported"


def _dangling_entries(nodes: list[ast.AST]) -> Iterator[tuple[int, str]]:
    for node in nodes:
        if not isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            continue
        first = node.body[0] if node.body else None
        if not (isinstance(first, ast.Expr) and isinstance(first.value, ast.Constant)):
            continue
        if isinstance(first.value.value, str):
            yield from _dangling_lines(first.value.value, first.value.lineno)


def _dangling_lines(docstring: str, first_line: int) -> Iterator[tuple[int, str]]:
    header: re.Match[str] | None = None
    entry_indent: int | None = None
    for number, line in enumerate(docstring.split("\n"), first_line):
        indent = len(line) - len(line.lstrip())
        if match := _SECTION.match(line):
            header, entry_indent = match, None
            continue
        if header is None or not line.strip():
            continue
        if indent <= len(header[1]):
            header = None
            continue
        if entry_indent is None:
            entry_indent = indent
        entry = _ENTRY.match(line) if indent == entry_indent else None
        text = entry["text"] if entry else ""
        if _DANGLING.match(text) or _NONE_ENTRY.search(line):
            yield number, line.strip()

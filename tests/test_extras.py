"""What the default tests import comes with the extras and the group that `make test` installs."""

from __future__ import annotations

import ast
import os
import re
import subprocess
import sys
import tomllib
from importlib.metadata import metadata, packages_distributions, requires
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from aladin_network.errors import EXTRA_OF, missing_package

ROOT = Path(__file__).parents[1]
OTHER_RUNS = {"clients", "cluster", "browser"}  # markers of tests that `make test` leaves out
OURS = {"tests", "benchmarks", "docker", "hatch_build"}


def installed_by_make_test() -> set[str]:
    """The packages of the Makefile's extras and of the group `dev`, with all that these require."""
    tables = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    extras = tables["project"]["optional-dependencies"]
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    assert "-e '.[$(ALL)]' --group dev\n" in makefile
    (named,) = re.findall(r"^ALL := (.*)$", makefile, re.MULTILINE)
    left = [*tables["project"]["dependencies"], *tables["dependency-groups"]["dev"]]
    left += [package for extra in named.split(",") for package in extras[extra]]
    seen: set[str] = set()
    while left:
        text = left.pop()
        requirement = Requirement(text)
        if text in seen:
            continue
        seen.add(text)
        if requirement.name == "aladin-search":
            left += [each for extra in requirement.extras for each in extras[extra]]
            continue
        for further in map(Requirement, requires(requirement.name) or []):
            if further.marker is None or any(
                further.marker.evaluate({"extra": extra}) for extra in (*requirement.extras, "")
            ):
                further.marker = None
                left.append(str(further))
    return {canonicalize_name(Requirement(text).name) for text in seen}


def markers(node: ast.AST) -> set[str]:
    """The markers that are applied to a test, or by `pytestmark` to a module."""
    if isinstance(node, ast.Module):
        assigned = [each for each in node.body if isinstance(each, ast.Assign)]
        named = [each for each in assigned if "pytestmark" in ast.unparse(each.targets[0])]
        applied: list[ast.AST] = [each.value for each in named]
    else:
        applied = list(getattr(node, "decorator_list", []))
    attributes = [each for one in applied for each in ast.walk(one)]
    return {each.attr for each in attributes if isinstance(each, ast.Attribute)}


def imports(module: ast.Module) -> set[str]:
    """The packages that a module's default tests import, with the helpers that these name."""
    if markers(module) & OTHER_RUNS:
        return set()
    left = [node for node in module.body if not markers(node) & OTHER_RUNS]
    helpers = {
        node.name: node
        for node in left
        if isinstance(node, ast.FunctionDef)
        and not node.name.startswith("test_")
        and not node.decorator_list
    }
    left = [node for node in left if node not in helpers.values()]
    found: set[str] = set()
    while left:
        for node in ast.walk(left.pop()):
            if isinstance(node, ast.Name) and node.id in helpers:
                left.append(helpers.pop(node.id))
            elif isinstance(node, ast.Import):
                found |= {alias.name.partition(".")[0] for alias in node.names}
            elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
                found.add(node.module.partition(".")[0])
    return found


def test_the_default_tests_import_only_what_make_test_installs() -> None:
    installed = installed_by_make_test()
    assert "torch" in installed and "pytest" in installed
    distributions = packages_distributions()
    absent: list[str] = []
    for file in sorted((ROOT / "tests").rglob("*.py")):
        for name in sorted(imports(ast.parse(file.read_text(encoding="utf-8")))):
            if name in sys.stdlib_module_names or name in OURS or name.startswith("aladin_"):
                continue
            if not {canonicalize_name(each) for each in distributions.get(name, ())} & installed:
                absent.append(f"{file.relative_to(ROOT)}: {name}")
    assert absent == []


def test_make_test_installs_the_extras_that_are_locked() -> None:
    # tests/docker/test_locks.py reads what the packages of these extras require.
    locked = re.findall(r"--extra ([\w-]+)", (ROOT / "Makefile").read_text(encoding="utf-8"))
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    requirements = extras["project"]["optional-dependencies"]
    names = {
        canonicalize_name(Requirement(text).name)
        for extra in locked
        for text in requirements[extra]
    }
    assert len(names) > 4
    assert names - {"aladin-search"} <= installed_by_make_test()


def test_messages_name_extras_that_there_are_by_the_line_that_installs_them() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    extras = project["optional-dependencies"]
    files = [ROOT / package for package in ("aladin", "training", "index", "service")]
    texts = [file.read_text(encoding="utf-8") for each in files for file in each.rglob("*.py")]
    named = [
        found for text in texts for found in re.findall(r"(.{15})aladin-search\[(.*?)\]", text)
    ]
    # The one that indexes record; others are named by `aladin_network.errors`.
    assert [extra for _, extra in named] == ["raw"] and named[0][0].endswith("pip install '")
    assert {*EXTRA_OF.values()} == {*extras}
    distributions = packages_distributions()
    for package, extra in EXTRA_OF.items():
        assert f"{sys.executable} -m pip install 'aladin-search[{extra}]'" in missing_package(
            "this", package
        )
        brought = {canonicalize_name(Requirement(text).name) for text in extras[extra]}
        assert brought & {canonicalize_name(name) for name in distributions[package]}, package
    assert missing_package("this", "numpy").endswith(" -m pip install aladin-search")


def test_the_base_is_small_and_has_no_package_for_training_nor_one_under_the_gpl() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    left, seen = list[str](project["dependencies"]), set[str]()
    while left:
        requirement = Requirement(left.pop())
        name = canonicalize_name(requirement.name)
        if name in seen or (requirement.marker and not requirement.marker.evaluate({"extra": ""})):
            continue
        seen.add(name)
        left += requires(name) or []
    assert {"faiss-cpu", "onnxruntime", "pi-heif", "huggingface-hub"} <= seen
    large = {"torch", "transformers", "scipy", "scikit-learn", "matplotlib", "pyarrow", "onnx"}
    assert not seen & (large | {"pillow-heif", "rawpy", "faiss-gpu"})
    for name in seen:
        stated = metadata(name)
        licences = [stated["License-Expression"] or (stated["License"] or "").partition("\n")[0]]
        licences += stated.get_all("Classifier") or []
        assert not re.search(r"(?<!L)GPL|(?<!Lesser )General Public", " ".join(licences)), name


def test_ci_begins_with_make_test_in_an_environment_that_this_alone_makes(tmp_path: Path) -> None:
    tree, programs, calls = tmp_path / "tree", tmp_path / "programs", tmp_path / "calls"
    (tree / ".ci").mkdir(parents=True)
    (tree / ".ci" / "run").write_bytes((ROOT / ".ci" / "run").read_bytes())
    (tree / ".venv").mkdir()
    (tree / ".venv" / ".installed-clients").touch()
    programs.mkdir()
    script = f'[ -e .venv ] && there=" with .venv"\necho "$0 $*$there" >> {calls}\nmkdir -p .venv\n'
    for name in ("make", "chromium"):  # so that none is installed
        (programs / name).write_text(f"#!/bin/sh\n{script}")
        (programs / name).chmod(0o755)
    environment = os.environ | {"PATH": f"{programs}:/usr/bin:/bin"}
    subprocess.run(["bash", ".ci/run"], cwd=tree, env=environment, check=True, timeout=60)
    first, *rest = calls.read_text(encoding="utf-8").replace(f"{programs}/", "").splitlines()
    assert first == "make test"
    assert "\nmake test\n" in (ROOT / "README.md").read_text(encoding="utf-8")
    others = ("check", "test-clients", "test-browser", "test-cluster")
    assert sorted(rest) == sorted(f"make {each} with .venv" for each in others)

"""The lock files: every package of an installation, with the hashes of its files."""

from __future__ import annotations

import importlib.metadata
import re
import subprocess
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version

Program = Callable[[str], ModuleType]
LOCKS = {
    "build": "docker/lock-build.txt",
    "cpu": "docker/lock-cpu.txt",
    "gpu": "docker/lock-gpu.txt",
    "anywhere": "requirements.lock",
}
ENTRY = re.compile(r"[A-Za-z0-9._-]+==[^ ;]+(?: ; [^#]+?)?(?: --hash=sha256:[0-9a-f]{64})+")


@pytest.fixture(scope="module")
def locked(root: Path) -> dict[str, dict[str, set[Version]]]:
    """The versions of each package in each lock file; more than one where platforms differ."""
    found: dict[str, dict[str, set[Version]]] = {}
    for name, file in LOCKS.items():
        text = re.sub(r" \\\n +", " ", (root / file).read_text(encoding="utf-8"))
        entries = [line for line in text.splitlines() if not line.startswith("#")]
        assert len(entries) > 30
        versions = found.setdefault(name, {})
        for entry in entries:
            assert ENTRY.fullmatch(entry), entry[:100]
            package, version = entry.split(" ", 1)[0].split("==")
            versions.setdefault(canonicalize_name(package), set()).add(Version(version))
    return found


def wanted(program: Program, name: str) -> list[str]:
    """The requirements of pyproject.toml that a lock file is made of."""
    pins = program("pins")
    if name == "build":
        return pins.build_requirements()
    return pins.declared("gpu" if name == "gpu" else "cpu")


@pytest.mark.parametrize("name", LOCKS)
def test_every_requirement_is_locked_to_a_version_that_it_allows(
    program: Program, locked: dict[str, dict[str, set[Version]]], name: str
) -> None:
    for text in wanted(program, name):
        requirement = Requirement(text)
        versions = locked[name].get(canonicalize_name(requirement.name), set())
        assert versions, f"{text} is not locked: python docker/pins.py lock"
        assert all(version in requirement.specifier for version in versions), text


@pytest.mark.parametrize("name", ["cpu", "anywhere"])
def test_what_the_declared_ones_require_is_locked_too(
    program: Program, locked: dict[str, dict[str, set[Version]]], name: str
) -> None:
    left = [Requirement(text) for text in wanted(program, name)]
    seen: set[str] = set()
    while left:
        requirement = left.pop()
        package = canonicalize_name(requirement.name)
        if package in seen:
            continue
        seen.add(package)
        assert package in locked[name], f"{package} is not locked: python docker/pins.py lock"
        for text in importlib.metadata.requires(package) or []:
            further = Requirement(text)
            extras = (*requirement.extras, "")
            if further.marker is None or any(
                further.marker.evaluate({"extra": extra}) for extra in extras
            ):
                left.append(further)
    assert len(seen) > 40


@pytest.mark.parametrize("name", LOCKS)
def test_versions_are_those_of_the_constraints(
    root: Path, locked: dict[str, dict[str, set[Version]]], name: str
) -> None:
    lines = (root / "docker" / "constraints.txt").read_text(encoding="utf-8").splitlines()
    pins = dict(line.split("==") for line in lines if not line.startswith("#"))
    # Other platforms, and the first releases of a Python, need packages that this one does not.
    elsewhere = {"async-timeout"}
    if name == "anywhere":
        elsewhere |= {"colorama", "httpx2-jsfetch"}
    assert locked[name].keys() - pins.keys() <= elsewhere
    for package, versions in locked[name].items():
        if package in pins:
            assert {version.public for version in versions} == {pins[package]}, package


def test_each_image_has_its_own_build_of_torch(
    locked: dict[str, dict[str, set[Version]]],
) -> None:
    assert {str(version) for version in locked["cpu"]["torch"]} == {"2.13.0+cpu"}
    assert {str(version) for version in locked["gpu"]["torch"]} == {"2.13.0"}
    assert not any(package.startswith("nvidia-") for package in locked["cpu"])
    assert {"triton", "nvidia-cublas", "nvidia-cublas-cu12"} <= locked["gpu"].keys()
    assert "faiss-cpu" in locked["cpu"] and "faiss-gpu" not in locked["cpu"]


def test_images_are_locked_for_their_own_python(root: Path, program: Program) -> None:
    dockerfile = (root / "docker" / "Dockerfile").read_text(encoding="utf-8")
    found = re.search(r"^ARG PYTHON_IMAGE=python:(\d+\.\d+)\.\d+-", dockerfile, re.MULTILINE)
    assert found is not None
    options = program("pins")._IMAGE_PLATFORM
    assert options[options.index("--python-version") + 1] == found[1]


@pytest.mark.parametrize("name", LOCKS)
def test_no_lock_file_names_a_place(root: Path, name: str) -> None:
    text = (root / LOCKS[name]).read_text(encoding="utf-8")
    assert not re.search(r"://|--index|--find-links|file:", text)


def test_lock_files_are_written_under_the_constraints(
    program: Program, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    pins = program("pins")
    (tmp_path / "docker").mkdir()
    pyproject = (Path(pins.DOCKER).parent / "pyproject.toml").read_bytes()
    (tmp_path / "pyproject.toml").write_bytes(pyproject)
    monkeypatch.setattr(pins, "DOCKER", tmp_path / "docker")
    calls: list[list[str]] = []

    def answer(command: list[str], **_: Any) -> subprocess.CompletedProcess[str]:
        calls.append([*command, Path(command[-1]).read_text(encoding="utf-8")])
        return subprocess.CompletedProcess(command, 0, stdout="torch==2.13.0 --hash=...\n")

    monkeypatch.setattr(pins.shutil, "which", lambda _: "/bin/uv")
    monkeypatch.setattr(subprocess, "run", answer)
    pins.lock("/wheels")
    for file in LOCKS.values():
        text = (tmp_path / file).read_text(encoding="utf-8")
        assert text.startswith("# ") and text.endswith("torch==2.13.0 --hash=...\n")
    for call in calls:
        assert "--generate-hashes" in call
        assert call[call.index("--constraint") + 1] == str(pins.CONSTRAINTS)
    of_cpu, of_gpu = calls[1], calls[2]
    assert of_cpu[of_cpu.index("--find-links") + 1] == "/wheels"
    assert "torch==2.13.0+cpu\n" in of_cpu[-1]
    assert "torch==2.13.0\n" in of_gpu[-1]
    assert "cyclonedx-bom==" in calls[0][-1]
    assert "--universal" in calls[3]


def test_without_uv_no_lock_file_is_written(
    program: Program, monkeypatch: pytest.MonkeyPatch
) -> None:
    pins = program("pins")
    monkeypatch.setattr(pins.shutil, "which", lambda _: None)
    with pytest.raises(SystemExit, match="uv is missing"):
        pins.with_hashes(["torch"], ())

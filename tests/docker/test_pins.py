"""The constraints: they pin all that an image has, as pyproject.toml allows it."""

from __future__ import annotations

import importlib.metadata
import json
import re
import subprocess
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version


@pytest.fixture(scope="module")
def constraints(root: Path) -> dict[str, Version]:
    """The pinned version of each package."""
    lines = (root / "docker" / "constraints.txt").read_text(encoding="utf-8").splitlines()
    pins = [line for line in lines if not line.startswith("#")]
    assert all(re.fullmatch(r"[a-z0-9-]+==[a-z0-9.]+", pin) for pin in pins)
    assert pins == sorted(set(pins), key=lambda pin: pin.split("==")[0])
    return {name: Version(version) for name, version in (pin.split("==") for pin in pins)}


@pytest.mark.parametrize("extra", ["cpu", "gpu"])
def test_every_declared_requirement_is_pinned_to_a_version_that_it_allows(
    program: Callable[[str], ModuleType], constraints: dict[str, Version], extra: str
) -> None:
    pins = program("pins")
    for text in [*pins.declared(extra), *pins.build_requirements()]:
        requirement = Requirement(text)
        version = constraints[canonicalize_name(requirement.name)]
        assert version in requirement.specifier, text


@pytest.mark.parametrize("extra", ["cpu", "gpu"])
def test_every_declared_requirement_ends_before_the_next_major_version(
    program: Callable[[str], ModuleType], constraints: dict[str, Version], extra: str
) -> None:
    for text in program("pins").declared(extra):
        requirement = Requirement(text)
        major = constraints[canonicalize_name(requirement.name)].major
        assert Version(f"{major + 1}.0") not in requirement.specifier, text


def test_what_the_declared_ones_require_is_pinned_too(
    program: Callable[[str], ModuleType], constraints: dict[str, Version]
) -> None:
    # What is installed here tells who requires whom.
    left = [Requirement(text) for text in program("pins").declared("cpu")]
    seen: set[tuple[str, frozenset[str]]] = set()
    while left:
        requirement = left.pop()
        name, extras = canonicalize_name(requirement.name), frozenset(requirement.extras)
        if (name, extras) in seen:
            continue
        seen.add((name, extras))
        assert name in constraints, f"{name} is not pinned: python docker/pins.py make"
        for text in importlib.metadata.requires(name) or []:
            further = Requirement(text)
            marker = further.marker
            if marker is None or any(marker.evaluate({"extra": extra}) for extra in (*extras, "")):
                left.append(further)
    assert len(seen) > 40


def test_the_gpu_image_gets_the_cuda_libraries_of_both(constraints: dict[str, Version]) -> None:
    # torch is built for CUDA 13 and FAISS for CUDA 12: each brings its own.
    assert {"triton", "nvidia-cublas", "nvidia-cublas-cu12"} <= set(constraints)


def test_the_declared_ones_of_an_image(program: Callable[[str], ModuleType]) -> None:
    pins = program("pins")
    everywhere = pins.declared("cpu")
    assert "torch==2.13.0" in everywhere
    assert any(text.startswith("faiss-cpu") for text in everywhere)
    assert any(text.startswith("faiss-gpu") for text in pins.declared("gpu"))


def test_pips_answer_becomes_names_and_public_versions(
    program: Callable[[str], ModuleType], monkeypatch: pytest.MonkeyPatch
) -> None:
    report = {
        "install": [
            {"metadata": {"name": "Typing_Extensions", "version": "4.16.0"}},
            {"metadata": {"name": "torch", "version": "2.13.0+cpu"}},
        ]
    }

    def answer(*_: object, **__: object) -> subprocess.CompletedProcess[str]:
        return subprocess.CompletedProcess([], 0, stdout=json.dumps(report))

    pins = program("pins")
    monkeypatch.setattr(subprocess, "run", answer)
    assert pins.resolve(["torch"]) == {"typing-extensions": "4.16.0", "torch": "2.13.0"}


def test_constraints_are_not_written_from_builds_for_cpus_alone(
    program: Callable[[str], ModuleType], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    pins = program("pins")
    monkeypatch.setattr(pins, "CONSTRAINTS", tmp_path / "constraints.txt")

    def for_cpus(_: list[str]) -> dict[str, str]:
        return {"torch": "2.13.0"}

    monkeypatch.setattr(pins, "resolve", for_cpus)
    with pytest.raises(SystemExit, match="CPU build of torch alone"):
        pins.make()
    assert not (tmp_path / "constraints.txt").exists()

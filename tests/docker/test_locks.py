"""The lock files: every package of an installation, with the hashes of its files."""

from __future__ import annotations

import importlib.metadata
import re
import shlex
import shutil
import subprocess
import tomllib

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version

from tests.docker.compose_files import ROOT

LOCKS = {
    "build": "docker/lock-build.txt",
    "serve": "docker/lock-serve.txt",
    "gpu": "docker/lock-gpu.txt",
}
ENTRY = re.compile(r"[A-Za-z0-9._-]+==[^ ;]+(?: ; [^#]+?)?(?: --hash=sha256:[0-9a-f]{64})+")


@pytest.fixture(scope="module")
def locked() -> dict[str, dict[str, set[Version]]]:
    """The versions of each package in each lock file."""
    found: dict[str, dict[str, set[Version]]] = {}
    for name, file in LOCKS.items():
        text = re.sub(r" \\\n +", " ", (ROOT / file).read_text(encoding="utf-8"))
        entries = [line for line in text.splitlines() if not line.startswith("#")]
        assert len(entries) > 30
        versions = found.setdefault(name, {})
        for entry in entries:
            assert ENTRY.fullmatch(entry), entry[:100]
            package, version = entry.split(" ", 1)[0].split("==")
            versions.setdefault(canonicalize_name(package), set()).add(Version(version))
    return found


@pytest.fixture(scope="module")
def commands() -> dict[str, list[str]]:
    """The command of `make lock` that writes each file, as words."""
    if shutil.which("make") is None:
        pytest.skip("make is not installed")
    done = subprocess.run(
        ["make", "--dry-run", "lock"], cwd=ROOT, check=True, capture_output=True, text=True
    )
    lines = done.stdout.replace("\\\n", " ").splitlines()
    compiled = [shlex.split(line) for line in lines if "pip compile" in line]
    return {
        name: command
        for name, file in LOCKS.items()
        for command in compiled
        if option(command, "--output-file") == file
    }


def option(command: list[str], name: str) -> str:
    """The value of an option."""
    return command[command.index(name) + 1]


def requirements_in(file: str) -> list[str]:
    """The requirements of a file for uv."""
    lines = (ROOT / file).read_text(encoding="utf-8").splitlines()
    return [line for line in lines if not line.startswith("#")]


def wanted(commands: dict[str, list[str]], name: str) -> list[str]:
    """The requirements that a lock file is made of."""
    pyproject = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    if name == "build":
        requirements = requirements_in("docker/lock-build.in")
        assert set(pyproject["build-system"]["requires"]) <= set(requirements)
        return requirements
    project = pyproject["project"]
    command = commands[name]
    assert "pyproject.toml" in command
    extras = [command[at + 1] for at, word in enumerate(command) if word == "--extra"]
    assert set(extras) - {"train"} == {"otel", "raw", "mcp", "milvus"}
    assert ("train" in extras) == (name == "gpu")
    requirements = list[str](project["dependencies"])
    if name == "gpu":
        assert option(command, "--no-emit-package") == "faiss-cpu"
        requirements = [each for each in requirements if not each.startswith("faiss-cpu")]
        requirements += requirements_in("docker/lock-gpu.in")
    for extra in extras:
        requirements += of_extra(project["optional-dependencies"], extra)
    return requirements


def of_extra(extras: dict[str, list[str]], name: str) -> list[str]:
    """The requirements of an extra, with those of the extras that it names."""
    found: list[str] = []
    for text in extras[name]:
        requirement = Requirement(text)
        if requirement.name != "aladin-search":
            found.append(text)
        for further in requirement.extras if requirement.name == "aladin-search" else ():
            found += of_extra(extras, further)
    return found


Locked = dict[str, dict[str, set[Version]]]


@pytest.mark.parametrize("name", LOCKS)
def test_every_requirement_is_locked_to_a_version_that_it_allows(
    commands: dict[str, list[str]], locked: Locked, name: str
) -> None:
    for text in wanted(commands, name):
        requirement = Requirement(text)
        versions = locked[name].get(canonicalize_name(requirement.name), set())
        assert versions, f"{text} is not locked: make lock"
        assert all(version in requirement.specifier for version in versions), text
        if name != "build":  # what we declare ends before the next major version
            ends = [Version(f"{version.major + 1}.0") for version in versions]
            assert not any(end in requirement.specifier for end in ends), text


def test_what_the_declared_ones_require_is_locked_too(
    commands: dict[str, list[str]], locked: Locked
) -> None:
    # The metadata of an installed package says what it requires; that of another version than the
    # locked one says nothing about the lock.
    left = [Requirement(text) for text in wanted(commands, "serve")]
    seen: set[str] = set()
    while left:
        requirement = left.pop()
        package = canonicalize_name(requirement.name)
        if package in seen:
            continue
        seen.add(package)
        assert package in locked["serve"], f"{package} is not locked: make lock"
        installed = Version(importlib.metadata.version(package))
        if installed not in locked["serve"][package]:
            continue
        for text in importlib.metadata.requires(package) or []:
            further = Requirement(text)
            extras = (*requirement.extras, "")
            if further.marker is None or any(
                further.marker.evaluate({"extra": extra}) for extra in extras
            ):
                left.append(further)
    assert len(seen) > 40


def test_lock_files_agree_and_have_what_their_image_needs(locked: Locked) -> None:
    versions: dict[str, set[str]] = {}
    for packages in locked.values():
        for package, own in packages.items():
            versions.setdefault(package, set()).update(version.public for version in own)
    assert {package: own for package, own in versions.items() if len(own) != 1} == {}
    cuda = {"torch", "triton", "nvidia-cublas", "nvidia-cublas-cu12"}
    assert cuda <= locked["gpu"].keys()
    # One FAISS in each image: its distributions overwrite each other.
    faiss = {name: [each for each in locked[name] if "faiss" in each] for name in LOCKS}
    assert faiss == {"build": [], "serve": ["faiss-cpu"], "gpu": ["faiss-gpu"]}
    # What serves needs no training framework.
    assert {"onnxruntime", "tokenizers"} <= locked["serve"].keys()
    of_training = {"torch", "transformers", "scikit-learn", "scipy", "matplotlib", "tensorboard"}
    assert not of_training & locked["serve"].keys()
    for file in LOCKS.values():
        text = (ROOT / file).read_text(encoding="utf-8")
        assert not re.search(r"://|--index|--find-links|file:", text)


def test_make_lock_writes_every_file_with_hashes_for_the_python_of_the_images(
    commands: dict[str, list[str]],
) -> None:
    dockerfile = (ROOT / "docker" / "Dockerfile").read_text(encoding="utf-8")
    found = re.search(r"^ARG PYTHON_IMAGE=python:(\d+\.\d+)\.\d+-", dockerfile, re.MULTILINE)
    assert found is not None
    assert commands.keys() == LOCKS.keys()
    for name, command in commands.items():
        assert option(command, "--python-version") == found[1]
        assert option(command, "--python-platform") == "x86_64-manylinux_2_28"
        assert "--generate-hashes" in command
        if name != "serve":  # with the versions of the service
            assert option(command, "--constraint") == LOCKS["serve"]
    assert "docker/lock-build.in" in commands["build"]
    assert "docker/lock-gpu.in" in commands["gpu"]

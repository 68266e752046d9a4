"""Names the packages of an image, and pins them.

    python docker/pins.py declared cpu   # what pyproject.toml asks for
    python docker/pins.py make           # writes docker/constraints.txt anew
    python docker/pins.py lock           # then writes the lock files of these versions, with hashes

Run `make` with the Python of the images, where pip finds PyTorch's CUDA build as well as the CPU
build: on Linux, with a pip that is told of no other index than its default. It downloads no more
than the packages' metadata, where the index offers that.

`lock` needs uv (PyPI: uv). It takes the versions from docker/constraints.txt and adds the sha256 of
their files: docker/lock-build.txt, docker/lock-cpu.txt and docker/lock-gpu.txt for the images
(Linux on x86-64), requirements.lock for installations elsewhere. PyTorch's build for CPUs is on no
index but PyTorch's own; `lock FOLDER` takes it from a folder of wheels instead.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import tempfile
import tomllib
from pathlib import Path

DOCKER = Path(__file__).resolve().parent
CONSTRAINTS = DOCKER / "constraints.txt"
EXTRAS = ("cpu", "gpu")
# What the build of an image runs besides: it lists the image's packages (SBOM).
_TOOLS = ("cyclonedx-bom==7.5.0",)
_TORCH_FOR_CPUS = "https://download.pytorch.org/whl/cpu/torch/"
# Every release of the Dockerfile's Python: the image that stands in for its base has an older one.
_IMAGE_PYTHON = "3.11"
_IMAGE_PLATFORM = (
    *("--python-version", _IMAGE_PYTHON),
    *("--python-platform", "x86_64-manylinux_2_28"),
)
# What both images have besides: traces, engines, and rates that replicas share.
_EVERYWHERE = ("otel", "milvus", "qdrant", "redis")

_HEAD = """\
# Every package of both images, exactly, those of the CUDA build of PyTorch included; an image has
# only those that it needs. Written by `python docker/pins.py make`: do not edit.
"""

_LOCK_HEAD = """\
# {what}, exactly, with the sha256 of the files that may be installed. Written by
# `python docker/pins.py lock`: do not edit.
"""


def declared(extra: str) -> list[str]:
    """Return the requirements of an image as pyproject.toml declares them.

    Args:
        extra: `cpu` or `gpu`.
    """
    with (DOCKER.parent / "pyproject.toml").open("rb") as stream:
        tables = tomllib.load(stream)
    project = tables["project"]
    extras = project["optional-dependencies"]
    return [
        *project["dependencies"],
        *(text for name in (extra, *_EVERYWHERE) for text in extras[name]),
    ]


def build_requirements() -> list[str]:
    """Return what building the wheel needs."""
    with (DOCKER.parent / "pyproject.toml").open("rb") as stream:
        return tomllib.load(stream)["build-system"]["requires"]


def resolve(requirements: list[str]) -> dict[str, str]:
    """Ask pip which versions it would install into an empty environment.

    Returns:
        version by normalised name; without the local part that tells builds of one version apart.

    Raises:
        subprocess.CalledProcessError: pip finds no such set.
    """
    command = [sys.executable, "-m", "pip", "install", "--dry-run", "--ignore-installed"]
    report = subprocess.run(
        [*command, "--quiet", "--report", "-", *requirements],
        check=True,
        stdout=subprocess.PIPE,
        text=True,
    ).stdout
    chosen = [entry["metadata"] for entry in json.loads(report)["install"]]
    return {
        metadata["name"].lower().replace("_", "-").replace(".", "-"): metadata["version"].split(
            "+"
        )[0]
        for metadata in chosen
    }


def make() -> None:
    """Write the constraints, of both images and of the wheel's build."""
    pins = resolve([*build_requirements(), *_TOOLS])
    for extra in EXTRAS:
        pins |= resolve(declared(extra))
    if "triton" not in pins:
        sys.exit("pip found a CPU build of torch alone: the GPU image's packages are not known")
    lines = [f"{name}=={version}\n" for name, version in sorted(pins.items())]
    CONSTRAINTS.write_text(_HEAD + "".join(lines), encoding="utf-8")


def lock(torch_for_cpus: str) -> None:
    """Write the lock files of the versions in the constraints.

    Args:
        torch_for_cpus: Folder, or page of links, that has PyTorch's build for CPUs.
    """
    root = DOCKER.parent
    cpu, gpu = (declared(extra) for extra in EXTRAS)
    builds = [
        (
            DOCKER / "lock-build.txt",
            "What the build of an image runs",
            [*build_requirements(), *_TOOLS],
            _IMAGE_PLATFORM,
        ),
        (
            DOCKER / "lock-cpu.txt",
            "Every package of the image without a card",
            [f"{text}+cpu" if text.startswith("torch==") else text for text in cpu],
            (*_IMAGE_PLATFORM, "--find-links", torch_for_cpus),
        ),
        (DOCKER / "lock-gpu.txt", "Every package of the GPU image", gpu, _IMAGE_PLATFORM),
        (
            root / "requirements.lock",
            "Every package of an installation on any platform, from PyPI alone",
            cpu,
            ("--universal", "--python-version", "3.11"),
        ),
    ]
    for path, what, requirements, options in builds:
        path.write_text(
            _LOCK_HEAD.format(what=what) + with_hashes(requirements, options), encoding="utf-8"
        )


def with_hashes(requirements: list[str], options: tuple[str, ...]) -> str:
    """Resolve requirements under the constraints and return them with hashes, as pip reads them.

    Args:
        requirements: Requirements of the installation, in the form of pyproject.toml.
        options: Options for `uv pip compile`: the platform, and where wheels are.

    Raises:
        subprocess.CalledProcessError: If uv finds no such set.
        SystemExit: If uv is missing.
    """
    uv = shutil.which("uv")
    if uv is None:
        sys.exit("uv is missing (PyPI: uv)")
    with tempfile.TemporaryDirectory() as folder:
        wanted = Path(folder) / "requirements.in"
        wanted.write_text("".join(f"{text}\n" for text in requirements), encoding="utf-8")
        return subprocess.run(
            [
                *(uv, "pip", "compile", "--quiet", "--generate-hashes", "--no-header"),
                *("--no-annotate", "--no-emit-index-url", "--no-emit-find-links"),
                *("--constraint", str(CONSTRAINTS), *options, str(wanted)),
            ],
            check=True,
            stdout=subprocess.PIPE,
            text=True,
        ).stdout


if __name__ == "__main__":
    match sys.argv[1:]:
        case ["declared", ("cpu" | "gpu") as extra]:
            print(*declared(extra), sep="\n")
        case ["make"]:
            make()
        case ["lock"]:
            lock(_TORCH_FOR_CPUS)
        case ["lock", folder]:
            lock(folder)
        case _:
            sys.exit(__doc__)

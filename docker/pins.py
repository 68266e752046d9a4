"""Names the packages of an image, and pins them.

    python docker/pins.py declared cpu   # what pyproject.toml asks for, which is installed
    python docker/pins.py make           # writes docker/constraints.txt anew

Run `make` with the Python of the images, where pip finds PyTorch's CUDA build as well as the CPU
build: on Linux, with a pip that is told of no other index than its default. It downloads no more
than the packages' metadata, where the index offers that.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tomllib
from pathlib import Path

DOCKER = Path(__file__).resolve().parent
CONSTRAINTS = DOCKER / "constraints.txt"
EXTRAS = ("cpu", "gpu")
# What both images have besides: traces, engines, and rates that replicas share.
_EVERYWHERE = ("otel", "milvus", "qdrant", "redis")

_HEAD = """\
# Every package of both images, exactly, those of the CUDA build of PyTorch included; an image has
# only those that it needs. Written by `python docker/pins.py make`: do not edit.
"""


def declared(extra: str) -> list[str]:
    """Return the requirements of an image as pyproject.toml declares them.

    Args:
        extra: `cpu` or `gpu`.
    """
    # In the image the two files lie side by side.
    beside = DOCKER / "pyproject.toml"
    file = beside if beside.exists() else DOCKER.parent / "pyproject.toml"
    with file.open("rb") as stream:
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
    pins = resolve(build_requirements())
    for extra in EXTRAS:
        pins |= resolve(declared(extra))
    if "triton" not in pins:
        sys.exit("pip found a CPU build of torch alone: the GPU image's packages are not known")
    lines = [f"{name}=={version}\n" for name, version in sorted(pins.items())]
    CONSTRAINTS.write_text(_HEAD + "".join(lines), encoding="utf-8")


if __name__ == "__main__":
    match sys.argv[1:]:
        case ["declared", ("cpu" | "gpu") as extra]:
            print(*declared(extra), sep="\n")
        case ["make"]:
            make()
        case _:
            sys.exit(__doc__)

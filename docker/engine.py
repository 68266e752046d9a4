"""Builds and runs images: with Docker if it responds, else with podman and buildah.

Podman requires neither a daemon nor this machine's network: images are stored in a given folder,
and containers run in a separate network namespace, which ends with them.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

# Options for a podman that is not run by systemd, as on a test machine or in a container.
_CONTAINERS = """\
[containers]
default_ulimits = ["nofile=1024:20000", "nproc=1024:1024"]
[engine]
runtime = "runc"
cgroup_manager = "cgroupfs"
events_logger = "file"
"""
_STORAGE = """\
[storage]
driver = "overlay"
graphroot = "{work}/images"
runroot = "{work}/run"
"""


class CheckError(Exception):
    """A command failed; the message contains the end of its output."""


def run(command: Sequence[str], timeout_s: float = 120) -> str:
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=timeout_s)
    except subprocess.TimeoutExpired:
        raise CheckError(
            f"{' '.join(command[:6])} ...: timed out after {timeout_s:.0f} s"
        ) from None
    if done.returncode:
        output = "\n".join((done.stdout + done.stderr).strip().splitlines()[-15:])
        raise CheckError(f"{' '.join(command)}: exit code {done.returncode}\n{output}")
    return done.stdout


def succeeds(*command: str) -> bool:
    return shutil.which(command[0]) is not None and not subprocess.call(
        command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )


class Docker:
    """A Docker engine of this machine."""

    name = "docker"
    command: Sequence[str] = ("docker",)
    # Prefix of a command that needs to reach a container's port.
    inside: Sequence[str] = ()

    @property
    def compose(self) -> Sequence[str] | None:
        """The command that reads compose files, or None if there is none."""
        return ("docker", "compose") if succeeds("docker", "compose", "version") else None

    def build(
        self,
        context: Path,
        tag: str,
        arguments: Mapping[str, str],
        log: Path,
        mounts: Sequence[str],
    ) -> None:
        if mounts:
            raise CheckError(
                "Docker cannot mount this machine's folders during a build: run without --host-pip"
            )
        _run_logged(["docker", "build", *_build_options(context, tag, arguments)], log)

    def size_bytes(self, image: str) -> int:
        """Return the size of an image, unpacked."""
        return int(run([*self.command, "image", "inspect", "--format", "{{.Size}}", image]))

    def close(self) -> None:
        """Remove everything that was created."""


class Podman(Docker):
    """Podman and buildah, with images and containers in a separate folder."""

    name = "podman"

    def __init__(self, work: Path) -> None:
        files = {"containers.conf": _CONTAINERS, "storage.conf": _STORAGE.format(work=work)}
        for name, text in files.items():
            (work / name).write_text(text, encoding="utf-8")
        self._environment = (
            "env",
            f"CONTAINERS_CONF={work}/containers.conf",
            f"CONTAINERS_STORAGE_CONF={work}/storage.conf",
        )
        # A namespace with the loopback interface only, which every command enters; `close` ends it.
        self._space = subprocess.Popen(["unshare", "--net", "--mount", "sleep", "infinity"])
        self.inside = ("nsenter", f"--target={self._space.pid}", "--net", "--mount")
        self.command = (*self.inside, *self._environment, "podman")

    @property
    def compose(self) -> Sequence[str] | None:
        """The command that reads compose files, or None if there is none."""
        beside = Path(sys.executable).with_name("podman-compose")
        found = shutil.which("podman-compose") or (str(beside) if beside.exists() else None)
        return None if found is None else (*self.inside, *self._environment, found)

    def has(self, image: str) -> bool:
        return succeeds(*self.command, "image", "exists", image)

    def pull(self, image: str) -> None:
        # Podman does not accept a tag and a digest together, so the digest alone is used.
        by_digest = re.sub(r":[^:@/]+@", "@", image)
        run([*self._environment, "podman", "pull", f"docker.io/library/{by_digest}"], 600)

    def load(self, archive: Path, image: str) -> None:
        """Create an image from the tar file of a root file system."""
        run([*self._environment, "podman", "import", str(archive), image], 600)

    def build(
        self,
        context: Path,
        tag: str,
        arguments: Mapping[str, str],
        log: Path,
        mounts: Sequence[str],
    ) -> None:
        """Build an image; see `Docker.build`."""
        options = [f"--volume={mount}" for mount in mounts]
        base = ["buildah", "bud", "--layers", "--isolation=chroot", "--format=docker"]
        never = ["--pull-never", "--network=host"]
        given = _build_options(context, tag, arguments)
        _run_logged([*self._environment, *base, *never, *options, *given], log)

    def close(self) -> None:
        """End the namespace; processes still running in it lose their network."""
        self._space.terminate()
        self._space.wait()


def find_engine(work: Path) -> Docker | None:
    """Return the container engine of this machine, or None if there is none."""
    if succeeds("docker", "info"):
        return Docker()
    tools = ("podman", "buildah", "runc", "unshare", "nsenter")
    if all(shutil.which(tool) for tool in tools):
        return Podman(work)
    return None


def _build_options(context: Path, tag: str, arguments: Mapping[str, str]) -> list[str]:
    given = [f"--build-arg={name}={value}" for name, value in arguments.items()]
    return [*given, f"--file={context}/docker/Dockerfile", f"--tag={tag}", str(context)]


def _run_logged(command: Sequence[str], log: Path) -> None:
    with log.open("w", encoding="utf-8") as stream:
        code = subprocess.call(command, stdout=stream, stderr=subprocess.STDOUT)
    if code:
        end = "\n".join(log.read_text(encoding="utf-8").splitlines()[-15:])
        raise CheckError(f"the build failed with exit code {code}; end of {log}:\n{end}")

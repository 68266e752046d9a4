"""Compiles the re-ranking kernel, and writes the README of package indexes.

The kernel is compiled when the package is built or installed, editable or not.

The compiler is $CC, else cc, gcc or clang on the PATH, else the one of the PyPI package ziglang,
which is asked for only then. An installation without a kernel works, more slowly: if nothing
compiles, that is said and the installation goes on.

Package indexes show the README without the files beside it and without anchors, so its links get
the address of the repository: $PROJECT_URL, else that of the git remote `origin`. Without either,
links become their text, and the package names no addresses. What a checkout installs as `.` has the
package's name there.
"""

from __future__ import annotations

import os
import platform
import re
import shlex
import shutil
import subprocess
import sys
import sysconfig
import tempfile
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface
from hatchling.metadata.plugin.interface import MetadataHookInterface

KERNEL = Path("index/aladin_index/kernel")
SUFFIX = {"win32": ".dll", "darwin": ".dylib"}.get(sys.platform, ".so")
FLAGS = ["-std=c11", "-O3", "-Wall", "-Wextra", "-fvisibility=hidden"]
LIBRARIES = [] if sys.platform == "win32" else ["-lm"]
# Each path is compiled for its own instructions and only taken where the processor has them.
PORTABLE = {
    "maxsim.c": [],
    "path_portable.c": [],
    "rounding.c": ["-ffp-contract=off"],
    "nearest.c": [],
}
X86_64 = {
    "path_avx2.c": ["-mavx2", "-mfma", "-mf16c"],
    "path_avx2_wide.c": ["-mavx2", "-mfma", "-mf16c"],
    "path_avx512.c": [
        *["-mavx2", "-mfma", "-mf16c"],
        *["-mavx512f", "-mavx512bw", "-mavx512vl", "-mavx512vnni"],
    ],
    "nearest_avx2.c": ["-mavx2"],
    "nearest_avx512.c": ["-mavx512f", "-mavx512vnni"],
}


class KernelBuildHook(BuildHookInterface[Any]):
    """Adds the compiled kernel to a wheel, or puts it beside its sources."""

    def dependencies(self) -> list[str]:
        """Ask for a compiler where there is none."""
        return [] if system_compiler() else ["ziglang>=0.13"]

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:  # noqa: ARG002
        """Compile, for a standard and an editable installation alike."""
        if self.target_name != "wheel":
            return
        library = Path(self.root) / KERNEL / f"_maxsim{SUFFIX}"
        try:
            compile_kernel(Path(self.root) / KERNEL, library)
        except (OSError, subprocess.CalledProcessError) as error:
            library.unlink(missing_ok=True)
            output = getattr(error, "stderr", None) or ""
            message = "The re-ranking kernel was not compiled; search works, more slowly."
            self.app.display_warning(f"{message} {error}\n{output}")
            return
        build_data["artifacts"].append(library.relative_to(self.root).as_posix())
        build_data["pure_python"] = False
        tag = sysconfig.get_platform().replace("-", "_").replace(".", "_")
        build_data["tag"] = f"py3-none-{tag}"


def system_compiler() -> list[str] | None:
    """Return the command of the compiler that this machine has."""
    if os.environ.get("CC"):
        return shlex.split(os.environ["CC"])
    for name in ("cc", "gcc", "clang"):
        if shutil.which(name):
            return [name]
    return None


def compile_kernel(sources: Path, library: Path) -> None:
    """Compile the kernel into a shared library, which appears whole or not at all.

    Raises:
        OSError: there is no such compiler.
        subprocess.CalledProcessError: it refused.
    """
    compiler = system_compiler() or [sys.executable, "-m", "ziglang", "cc", "-mcpu=baseline"]
    flags = FLAGS if sys.platform == "win32" else [*FLAGS, "-fPIC"]
    units: dict[str, list[str]] = dict(PORTABLE)
    if platform.machine().lower() in ("x86_64", "amd64"):
        units |= X86_64
    with tempfile.TemporaryDirectory(dir=sources) as folder:
        objects: list[str] = []
        for name, own in units.items():
            objects.append(f"{folder}/{name}.o")
            run([*compiler, *flags, *own, "-c", str(sources / name), "-o", objects[-1]])
        built = f"{folder}/{library.name}"
        run([*compiler, "-shared", *objects, "-o", built, *LIBRARIES])
        Path(built).replace(library)


def run(command: list[str]) -> None:
    """Run a command, keeping what it says for the error."""
    subprocess.run(command, check=True, capture_output=True, text=True)


class ReadmeHook(MetadataHookInterface):
    """Writes the package's description and the addresses of its repository."""

    def update(self, metadata: dict[str, Any]) -> None:
        """Set `readme` and `urls`."""
        root = Path(self.root)
        url, tag = repository_url(root), f"v{metadata['version']}"
        text = (root / "README.md").read_text(encoding="utf-8")
        metadata["readme"] = {
            "content-type": "text/markdown",
            "text": with_absolute_links(with_package_name(text, metadata["name"]), url, tag),
        }
        metadata["urls"] = {} if url is None else project_urls(url)


def repository_url(root: Path) -> str | None:
    """Return the web address of the repository, or None if it is unknown.

    Args:
        root: Root of the sources: a checkout, or an unpacked sdist, which names the address.
    """
    if os.environ.get("PROJECT_URL"):
        return os.environ["PROJECT_URL"].rstrip("/")
    unpacked = root / "PKG-INFO"
    if unpacked.is_file():
        named = re.search(
            r"^Project-URL: Source, (\S+)$", unpacked.read_text("utf-8"), re.MULTILINE
        )
        return named[1] if named else None
    try:
        done = subprocess.run(
            ["git", "config", "--get", "remote.origin.url"],
            cwd=root, check=True, capture_output=True, text=True,
        )  # fmt: skip
    except (OSError, subprocess.CalledProcessError):
        return None
    return web_address(done.stdout.strip())


def web_address(remote: str) -> str | None:
    """Return the web address of a git remote, or None for one that is not on the web."""
    found = re.fullmatch(
        r"(?:https?://(?:[^@/]*@)?|ssh://git@|git@)([\w.-]+)(?::\d+)?[:/](.+?)(?:\.git)?/?", remote
    )
    return None if found is None else f"https://{found[1]}/{found[2]}"


def project_urls(url: str) -> dict[str, str]:
    """Return the addresses that a package index shows beside the package."""
    return {
        "Homepage": url,
        "Documentation": f"{url}#documents",
        "Changelog": f"{url}/blob/main/CHANGELOG.md",
        "Issues": f"{url}/issues",
        "Source": url,
    }


def with_package_name(text: str, name: str) -> str:
    """Name the package where a document installs the folder that it lies in, or extras of that."""
    text = re.sub(r"(?<=pip install )\.(?=[\s`])", name, text)
    return text.replace("pip install '.[", f"pip install '{name}[")


def with_absolute_links(text: str, url: str | None, tag: str) -> str:
    """Make the links of a Markdown document work away from its repository.

    Args:
        text: The document. Links to the web stay as they are.
        url: Web address of the repository, or None; links become text then, and pictures go.
        tag: Tag or branch that the links show.
    """

    def link(found: re.Match[str]) -> str:
        is_picture, words, target = found[1] == "!", found[2], found[3]
        if re.match(r"https?:|mailto:", target):
            return found[0]
        if url is None:
            return "" if is_picture else words
        if target.startswith("#"):
            return f"[{words}]({url}{target})"
        view = "raw" if is_picture else "blob"
        return f"{found[1]}[{words}]({url}/{view}/{tag}/{target})"

    return re.sub(r"(!?)\[([^\]]*)\]\(([^)\s]+)\)", link, text)

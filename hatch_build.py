"""Compiles the re-ranking kernel when the package is built or installed, editable or not.

The compiler is $CC, else cc, gcc or clang on the PATH, else the one of the PyPI package ziglang,
which is asked for only then. An installation without a kernel works, more slowly: if nothing
compiles, that is said and the installation goes on.
"""

from __future__ import annotations

import os
import platform
import shlex
import shutil
import subprocess
import sys
import sysconfig
import tempfile
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

KERNEL = Path("index/aladin_index/kernel")
SUFFIX = {"win32": ".dll", "darwin": ".dylib"}.get(sys.platform, ".so")
FLAGS = ["-std=c11", "-O3", "-Wall", "-Wextra", "-fvisibility=hidden"]
LIBRARIES = [] if sys.platform == "win32" else ["-lm"]
# Each path is compiled for its own instructions and only taken where the processor has them.
PORTABLE = {
    "maxsim.c": [],
    "path_portable.c": [],
    "rounding.c": ["-ffp-contract=off"],
}
X86_64 = {
    "path_avx2.c": ["-mavx2", "-mfma", "-mf16c"],
    "path_avx512.c": [
        *["-mavx2", "-mfma", "-mf16c"],
        *["-mavx512f", "-mavx512bw", "-mavx512vl", "-mavx512vnni"],
    ],
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

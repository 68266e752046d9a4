"""Makes an image that stands in for `python:3.11-slim-bookworm` where that cannot be pulled.

It is a minimal Debian of the release that runs here, and the Python that runs this file, at
/usr/local as in the real one: enough to try the Dockerfile, nothing to be published.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import tarfile
from pathlib import Path

# What the real image has besides what Python itself is linked with.
_PACKAGES = ("ca-certificates", "netbase", "tzdata")
_NOT_COPIED = ("site-packages", "__pycache__", "test", "tests", "tkinter", "idlelib", "*.a")


def make_stand_in(archive: Path, work: Path) -> None:
    """Write the root file system of the image as a tar file.

    Args:
        archive: to be written, whole or not at all.
        work: folder for the file system itself.

    Raises:
        subprocess.CalledProcessError: debootstrap failed.
    """
    root = work / "stand-in-root"
    shutil.rmtree(root, ignore_errors=True)
    prefix = Path(sys.base_prefix)
    packages = ",".join(sorted({*_PACKAGES, *_packages_of(prefix)}))
    codename = _codename()
    bootstrap = ["debootstrap", "--variant=minbase", f"--include={packages}", codename]
    subprocess.run([*bootstrap, str(root)], check=True, stdout=subprocess.DEVNULL)
    _copy_python(prefix, root / "usr" / "local")
    for command in (
        ["ldconfig"],
        ["/usr/local/bin/python3", "-m", "ensurepip", "--default-pip"],
    ):
        subprocess.run(["chroot", str(root), *command], check=True, stdout=subprocess.DEVNULL)
    for name in ("var/cache/apt/archives", "var/lib/apt/lists"):
        shutil.rmtree(root / name)
        (root / name / "partial").mkdir(parents=True)
    partial = archive.with_suffix(".partial")
    with tarfile.open(partial, "w") as tar:
        tar.add(root, arcname=".", filter=_no_device)
    partial.replace(archive)
    shutil.rmtree(root)


def _codename() -> str:
    release = Path("/etc/os-release").read_text(encoding="utf-8")
    found = re.search(r"^VERSION_CODENAME=(\w+)$", release, re.MULTILINE)
    if found is None:
        raise SystemExit("expected Debian's name of this release in /etc/os-release, found none")
    return found[1]


def _packages_of(prefix: Path) -> set[str]:
    """Name the Debian packages with the libraries that this Python and its modules load."""
    version = f"python{sys.version_info.major}.{sys.version_info.minor}"
    modules = (prefix / "lib" / version / "lib-dynload").glob("*.so")
    files = [sys.executable, *(str(file) for file in modules if "tkinter" not in file.name)]
    linked = subprocess.run(["ldd", *files], check=True, stdout=subprocess.PIPE, text=True).stdout
    names: set[str] = set()
    for library in set(re.findall(r"=> (/\S+)", linked)):
        # dpkg knows a file by the name that its package gave it: with or without /usr.
        for path in (library, f"/usr{library}"):
            owner = subprocess.run(
                ["dpkg", "--search", path],
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                text=True,
            )
            if owner.returncode == 0:
                names.add(owner.stdout.split(":")[0])
                break
    return names


def _copy_python(prefix: Path, local: Path) -> None:
    version = f"python{sys.version_info.major}.{sys.version_info.minor}"
    shutil.copytree(
        prefix / "lib" / version,
        local / "lib" / version,
        ignore=shutil.ignore_patterns(*_NOT_COPIED),
        dirs_exist_ok=True,
        symlinks=True,
    )
    for library in (prefix / "lib").glob("libpython3*.so*"):
        shutil.copy2(library, local / "lib", follow_symlinks=False)
    (local / "bin").mkdir(exist_ok=True)
    shutil.copy2(prefix / "bin" / version, local / "bin")
    for name in ("python3", "python"):
        (local / "bin" / name).symlink_to(version)


def _no_device(entry: tarfile.TarInfo) -> tarfile.TarInfo | None:
    """Leave out what an image cannot hold."""
    return None if entry.isdev() else entry

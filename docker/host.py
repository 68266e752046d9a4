"""Makes pip's configuration and a base image of this machine available to a build.

`share_pip_config` writes the configuration of pip (certificates, indexes, folders of wheels) for
use inside the build. `make_stand_in` makes a replacement of `python:3.11-slim-bookworm` if that
image cannot be pulled: a minimal Debian of this machine's release, with the Python that runs this
file at /usr/local. It is sufficient to test the Dockerfile, but must not be published.
"""

from __future__ import annotations

import ast
import re
import shutil
import subprocess
import sys
import tarfile
from pathlib import Path
from urllib.parse import unquote, urlsplit

# Options that refer to paths of this machine only.
_NOT_SHARED = ("cache-dir", "log", "require-virtualenv")


def share_pip_config(target: Path) -> list[str]:
    """Write pip's configuration from its files and the environment to a single file."""
    listed = subprocess.run(
        [sys.executable, "-m", "pip", "config", "list"], check=True, capture_output=True, text=True
    ).stdout
    options: dict[str, list[str]] = {}
    # The environment takes precedence over files, as in pip itself.
    for line in sorted(listed.splitlines(), key=lambda line: line.startswith(":env:")):
        name, _, value = line.partition("=")
        option = name.split(".", 1)[1]
        if option not in _NOT_SHARED:
            options[option] = str(ast.literal_eval(value)).split()
    lines = [f"{option} = {' '.join(values)}\n" for option, values in options.items()]
    target.write_text("[global]\n" + "".join(lines), encoding="utf-8")
    places = {place for values in options.values() for value in values for place in _places(value)}
    return [f"{target}:/etc/pip.conf:ro", *(f"{place}:{place}:ro" for place in sorted(places))]


def _places(value: str) -> list[Path]:
    """Return the folders and files of this machine in an option's value."""
    if value.startswith("file:"):
        folder = Path(unquote(urlsplit(value).path))
        # A package index stores its packages next to its pages.
        return [folder.parent]
    if re.match(r"/", value) and Path(value).exists():
        return [Path(value)]
    return []


# Debian packages of the real image, in addition to the libraries that Python is linked with.
_PACKAGES = ("ca-certificates", "netbase", "tzdata")
_NOT_COPIED = ("site-packages", "__pycache__", "test", "tests", "tkinter", "idlelib", "*.a")


def make_stand_in(archive: Path, work: Path) -> None:
    """Write the root file system of the image as a tar file."""
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
        raise SystemExit("expected VERSION_CODENAME of Debian in /etc/os-release, found none")
    return found[1]


def _packages_of(prefix: Path) -> set[str]:
    """Return the Debian packages with the libraries of this Python and its modules."""
    version = f"python{sys.version_info.major}.{sys.version_info.minor}"
    modules = (prefix / "lib" / version / "lib-dynload").glob("*.so")
    files = [sys.executable, *(str(file) for file in modules if "tkinter" not in file.name)]
    linked = subprocess.run(["ldd", *files], check=True, stdout=subprocess.PIPE, text=True).stdout
    names: set[str] = set()
    for library in set(re.findall(r"=> (/\S+)", linked)):
        # dpkg lists a file under its path in the package, with or without /usr.
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
    """Skip device files, which an image cannot contain."""
    return None if entry.isdev() else entry

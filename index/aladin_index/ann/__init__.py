"""The first stage: FAISS, exact search, and the choice between them.

FAISS is imported here alone.
"""

from __future__ import annotations

from contextlib import suppress
from importlib.metadata import Distribution, PackageNotFoundError, distribution
from pathlib import Path
from typing import Any, cast

from aladin_network.errors import ConfigError, missing_package

# Both install the module `faiss`, over each other's files; uninstalling one removes the other's.
_FOR_CPUS, _FOR_GPUS = "faiss-cpu", "faiss-gpu"


def _installed() -> dict[str, Distribution]:
    """Return the recorded distributions of FAISS by their names."""
    found: dict[str, Distribution] = {}
    for name in (_FOR_CPUS, _FOR_GPUS):
        with suppress(PackageNotFoundError):
            found[name] = distribution(name)
    return found


def _check_files(installed: dict[str, Distribution]) -> None:
    """Refuse a module whose files are of two distributions, or not of the recorded one."""
    folders = {name: Path(str(each.locate_file("faiss"))) for name, each in installed.items()}
    if len(set(folders.values())) < len(folders):
        raise ConfigError(
            f"{_FOR_CPUS} and {_FOR_GPUS} are both installed, and each has overwritten files of "
            f"the other; expected one of them: {_replacing(installed[_FOR_GPUS], _FOR_GPUS)} for "
            f"an NVIDIA GPU, or the same with {_FOR_CPUS} at the end"
        )
    for name, each in installed.items():
        if each.files is None:  # not recorded by whoever installed it
            continue
        recorded = {file.name: file.size for file in each.files if file.parent.name == "faiss"}
        # Of Python's files alone: libraries may have been stripped.
        found = {file.name: file.stat().st_size for file in folders[name].glob("*.py")}
        is_own = all(recorded.get(file, -1) in (size, None) for file, size in found.items())
        if "__init__.py" not in found or not is_own:
            raise ConfigError(
                f"{name} is installed, but its module faiss has lost files, or has those of "
                f"another distribution, as {_FOR_CPUS} and {_FOR_GPUS} leave it if they were "
                f"installed one after the other: {_replacing(each, name)}"
            )


def _replacing(recorded: Distribution, name: str) -> str:
    """Return the line to paste that leaves one distribution, whole."""
    uninstall = f"pip uninstall -y {_FOR_CPUS} {_FOR_GPUS}"
    return f"`{uninstall} && pip install {name}=={recorded.version}`"


_distributions = _installed()
_check_files(_distributions)

# torch and the FAISS for GPUs each include CUDA libraries, and torch's must take precedence. The
# FAISS for CPUs shares none with torch, which is not imported for it: their OpenMP libraries have
# different names, and each package uses its own, whichever is imported first.
if _FOR_GPUS in _distributions:
    import torch  # noqa: F401  # pyright: ignore[reportUnusedImport]

try:
    import faiss as faiss_module
except ModuleNotFoundError as error:
    if error.name != "faiss":
        raise
    raise ConfigError(missing_package("the first stage", "faiss")) from error

# FAISS adds its keyword arguments at import, invisible to a type checker.
faiss = cast(Any, faiss_module)

"""Packages that only some installations have, and the extra of pyproject.toml that brings each."""

from __future__ import annotations

import sys
from importlib.util import find_spec

from aladin_network.errors import ConfigError

_DISTRIBUTION = "aladin-search"

EXTRA_OF = {
    "torch": "train",
    "transformers": "train",
    "peft": "train",
    "tensorboard": "train",
    "matplotlib": "train",
    "sklearn": "train",
    "onnx": "train",
    "onnxscript": "train",
    "pyarrow": "parquet",
    "rawpy": "raw",
    "pymilvus": "milvus",
    "ray": "ray",
    "mcp": "mcp",
    "opentelemetry": "otel",
}

# Where there is no GPU to use, PyTorch's own packages are a fifth of those of PyPI.
_CPU_BUILDS = "--extra-index-url https://download.pytorch.org/whl/cpu"


def missing_package(user: str, package: str) -> str:
    """Describe a package that `user` needs and that is not here, with the line that installs it."""
    return f"{user} needs the package {package}: {install_line(EXTRA_OF.get(package))}"


def install_line(extra: str | None) -> str:
    """Return the line to paste that adds an extra, or what the package itself needs."""
    added = f"'{_DISTRIBUTION}[{extra}]'" if extra else _DISTRIBUTION
    line = f"{sys.executable} -m pip install {added}"
    return f"{line} (without a GPU, add {_CPU_BUILDS})" if extra == "train" else line


def need_packages(user: str, *packages: str) -> None:
    """Refuse work for which a package is missing, before it begins; nothing is imported.

    Raises:
        ConfigError: If one of the packages is not installed.
    """
    for package in packages:
        if not is_installed(package):
            raise ConfigError(missing_package(user, package))


def is_installed(package: str) -> bool:
    """Tell whether a package can be imported, without importing it."""
    try:
        return find_spec(package) is not None
    except ModuleNotFoundError:  # of who looks for modules elsewhere
        return False

"""The first stage: FAISS, exact search, and the choice between them.

FAISS is imported here alone.
"""

from __future__ import annotations

from contextlib import suppress
from importlib.metadata import PackageNotFoundError, distribution
from typing import Any, cast

from aladin_network.errors import ConfigError

# torch and the FAISS for GPUs each include CUDA libraries, and torch's must take precedence. The
# FAISS for CPUs shares none with torch, which is not imported for it: their OpenMP libraries have
# different names, and each package uses its own, whichever is imported first.
with suppress(PackageNotFoundError):
    distribution("faiss-gpu")
    import torch  # noqa: F401  # pyright: ignore[reportUnusedImport]

try:
    import faiss as faiss_module
except ModuleNotFoundError as error:
    if error.name != "faiss":
        raise
    raise ConfigError(
        "FAISS is not installed: pip install 'aladin-search[cpu]', or 'aladin-search[gpu]' for "
        "searches on a CUDA device"
    ) from error

# FAISS adds its keyword arguments at import, invisible to a type checker.
faiss = cast(Any, faiss_module)

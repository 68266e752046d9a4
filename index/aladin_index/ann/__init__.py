"""The first stage: FAISS, exact search, and the choice between them.

FAISS is imported here alone, after torch.
"""

from __future__ import annotations

from typing import Any, cast

# torch comes first: it and FAISS may each include CUDA libraries, and torch's must take precedence.
import torch  # noqa: F401  # isort: skip  # pyright: ignore[reportUnusedImport]

from aladin_network.errors import ConfigError

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

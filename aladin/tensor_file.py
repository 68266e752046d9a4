"""Safetensors files: permissions by the umask, and errors that name the real reason.

The safetensors library creates its files with mode 0600, whatever the umask, and reports every
failure to open one as "No such file or directory".
"""

from __future__ import annotations

import stat
from collections.abc import Mapping
from pathlib import Path

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor


def write_tensors(
    path: Path, tensors: Mapping[str, Tensor], metadata: Mapping[str, str] | None = None
) -> None:
    """Write a safetensors file with the permissions of any other new file.

    Args:
        path: File to write; it is replaced if it exists.
        tensors: Contiguous tensors that share no memory, by name.
        metadata: Text to store in the file's header, by name.

    Raises:
        OSError: If the file cannot be written.
        SafetensorError: If the tensors share memory or the library cannot write the file.
    """
    path.touch()
    # Of a file made just now this is 0666 without the umask. The umask itself can only be read
    # by setting it, for all threads of the process.
    mode = stat.S_IMODE(path.stat().st_mode)
    save_file(dict(tensors), path, dict(metadata) if metadata else None)
    path.chmod(mode)


def read_tensors(path: Path, device: torch.device | str = "cpu") -> dict[str, Tensor]:
    """Read a safetensors file.

    Args:
        path: File to read.
        device: Device of the returned tensors.

    Raises:
        OSError: If the file cannot be opened: the system's own error, such as PermissionError.
        SafetensorError: If it is no safetensors file, or a damaged one.
    """
    check_readable(path)
    return load_file(path, device=str(device))


def check_readable(path: Path) -> None:
    """Open and close a file.

    Raises:
        OSError: If it cannot be opened: the system's own error, such as PermissionError.
    """
    with path.open("rb"):
        pass

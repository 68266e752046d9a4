"""Shrinks an image's installed packages: python slim.py serve|gpu, run by the image's Python.

Headers, static libraries and tests are removed, because no program of the image opens them. The
bytecode is compiled now, because the image is read-only when it runs.
"""

from __future__ import annotations

import compileall
import py_compile
import re
import shutil
import sys
import sysconfig
from pathlib import Path

FOLDERS = ("tests", "include", "__pycache__", "torch/test")
FILES = ("*.a", "*.h", "*.hpp", "*.cuh", "*.pxd", "*.pyx", "*.cmake")
TORCH_PROGRAMS = ("bin/test_*", "bin/protoc*")
# ONNX Runtime for programs in C; Python's is complete in itself.
ONNX_LIBRARY = "onnxruntime/capi/libonnxruntime.so*"
# What no command of the image that serves uses: transfers in parts from a hub of models, optional
# for its client, which the tokenizers require; and programs that change graphs.
NOT_SERVING = (
    "hf_xet",
    "hf_xet-*.dist-info",
    "onnxruntime/quantization",
    "onnxruntime/tools",
    "onnxruntime/transformers",
)
# Hundreds of networks, of which a service loads two, and languages whose source nobody shows: what
# is loaded of them is compiled quickly. A service does not load the client of the hub.
NOT_COMPILED = re.compile(r"/transformers/models/|/pygments/(lexers|styles)/|/huggingface_hub/")


def shrink(packages: Path, kind: str) -> None:
    """Remove files that only compilers and tests need, or other commands than those of `serve`."""
    for name in (*FOLDERS, *(NOT_SERVING if kind == "serve" else ())):
        for folder in list(packages.rglob(name)):
            if folder.is_dir():  # not already removed with its parent
                shutil.rmtree(folder)
    for pattern in (*FILES, ONNX_LIBRARY, *(f"torch/{name}" for name in TORCH_PROGRAMS)):
        for file in list(packages.rglob(pattern)):
            file.unlink()


def mebibytes(folder: Path) -> int:
    """Add up the sizes of all files below a folder."""
    return sum(file.stat().st_size for file in folder.rglob("*") if file.is_file()) // 2**20


if __name__ == "__main__":
    place = Path(sysconfig.get_paths()["purelib"])
    before = mebibytes(place)
    shrink(place, sys.argv[1])
    after = mebibytes(place)
    # Validated by hash instead of by time, because a copy may change the times of sources.
    compileall.compile_dir(
        place,
        quiet=2,
        rx=NOT_COMPILED,
        invalidation_mode=py_compile.PycInvalidationMode.UNCHECKED_HASH,
    )
    compiled = mebibytes(place)
    print(f"packages: {before} MiB, {after} MiB without headers and tests, {compiled} MiB compiled")

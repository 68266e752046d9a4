"""Memory and time of a training step, for chunks of several sizes.

    python -m benchmarks.training.step_memory
    python -m benchmarks.training.step_memory --batch 1024 --chunks 32 128 --device cuda

A network with random weights (`benchmarks.training.random_step`) takes steps on random photos and
texts.
"Kept" is the largest number of bytes that autograd keeps for the backward pass; on a GPU, the
largest memory allocated by the step is measured, too. Ratios are relative to the step of the same
run that keeps the whole graph.
"""

from __future__ import annotations

import time
from collections.abc import Generator
from contextlib import contextmanager
from functools import partial
from typing import Any

import torch
from torch import Tensor

from aladin_training.batches.batch import Batch
from aladin_training.config.stage import StageConfig, TaskConfig
from aladin_training.parallel.numerics import loss_scaler
from aladin_training.step import compute_gradients
from aladin_training.tasks.joint import JointTask
from benchmarks.lib.output import figures_parser, print_json, print_rows
from benchmarks.training.random_step import random_batch, random_network

_ROUNDS = 3


class KeptBytes:
    """Size of the data kept between forward and backward passes; see `counting_kept_bytes`.

    Attributes:
        now: Number of bytes kept at present; data kept twice counts twice.
        most: Maximum number of bytes kept.
    """

    def __init__(self) -> None:
        self.now = self.most = 0


@contextmanager
def counting_kept_bytes() -> Generator[KeptBytes]:
    """Count the bytes that autograd keeps inside the block."""
    counter = KeptBytes()
    with torch.autograd.graph.saved_tensors_hooks(partial(_Kept, counter), _unpack):
        yield counter


class _Kept:
    """One kept tensor; autograd releases it when its part of the graph is no longer needed."""

    def __init__(self, counter: KeptBytes, tensor: Tensor) -> None:
        self._counter, self.tensor = counter, tensor
        counter.now += tensor.nbytes
        counter.most = max(counter.most, counter.now)

    def __del__(self) -> None:
        """Subtract the tensor from the count."""
        self._counter.now -= self.tensor.nbytes


def _unpack(kept: _Kept) -> Tensor:
    return kept.tensor


def measure(batch_size: int, chunk_sizes: list[int], device: torch.device) -> list[dict[str, Any]]:
    """Measure the whole graph first, then the chunks.

    Args:
        batch_size: Number of photos per step, each with one text.
        chunk_sizes: Chunk sizes to compare.
        device: Device that computes.
    """
    tasks = {
        "alignment": TaskConfig(loss="triplet"),
        "distillation": TaskConfig(loss="listnet"),
    }
    task = JointTask(random_network(), StageConfig(name="s", tasks=tasks)).to(device)
    task.start_epoch(0)
    batch = random_batch(batch_size)
    rows: list[dict[str, Any]] = []
    for chunk_size in (None, *chunk_sizes):
        rows.append({"chunk": chunk_size or batch_size, **_step(task, batch, chunk_size, device)})
        rows[-1]["kept_ratio"] = rows[-1]["kept_bytes"] / rows[0]["kept_bytes"]
        rows[-1]["time_ratio"] = rows[-1]["step_s"] / rows[0]["step_s"]
        if device.type == "cuda":
            rows[-1]["gpu_ratio"] = rows[-1]["gpu_bytes"] / rows[0]["gpu_bytes"]
    return rows


def _step(
    task: JointTask, batch: Batch, chunk_size: int | None, device: torch.device
) -> dict[str, float]:
    """Measure bytes in one step, and seconds in others, because counting takes time."""
    scaler = loss_scaler("float32", device)
    seconds: list[float] = []
    figures: dict[str, float] = {}
    for _ in range(_ROUNDS):
        task.zero_grad(set_to_none=True)
        if device.type == "cuda":
            torch.cuda.reset_peak_memory_stats(device)
        begun = time.perf_counter()
        compute_gradients(task, batch, "float32", chunk_size, scaler).total.item()
        if device.type == "cuda":
            torch.cuda.synchronize(device)
            figures["gpu_bytes"] = torch.cuda.max_memory_allocated(device)
        seconds.append(time.perf_counter() - begun)
    task.zero_grad(set_to_none=True)
    with counting_kept_bytes() as kept:
        compute_gradients(task, batch, "float32", chunk_size, scaler)
    return {"kept_bytes": kept.most, "step_s": min(seconds), **figures}


def main() -> None:
    """Run the measurements, and print a table or JSON."""
    parser = figures_parser(__doc__)
    parser.add_argument("--batch", type=int, default=128, help="photos per step")
    parser.add_argument("--chunks", type=int, nargs="+", default=[8, 32], help="chunk sizes")
    parser.add_argument("--device", default="cpu", help="device of torch")
    options = parser.parse_args()
    rows = measure(options.batch, options.chunks, torch.device(options.device))
    if options.json:
        print_json(rows)
        return
    cells = [
        [
            row["chunk"],
            f"{row['kept_bytes'] / 2**20:.1f}",
            f"{row['kept_ratio']:.2f}",
            f"{1000 * row['step_s']:.0f}",
            f"{row['time_ratio']:.2f}",
        ]
        for row in rows
    ]
    print_rows(["chunk", "kept MiB", "ratio", "step ms", "ratio"], cells)


if __name__ == "__main__":
    main()

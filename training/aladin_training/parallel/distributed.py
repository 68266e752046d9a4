"""The processes of one training job: their ranks, their collectives and their gradients.

``torchrun`` starts the processes and passes their addresses in environment variables. Without it
there is one process, and every function here handles that case.
"""

from __future__ import annotations

import os
from collections.abc import Generator, Iterable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import Any, NamedTuple, TypeVar

import torch
from torch import Tensor, nn
from torch import distributed as dist
from torch.distributed.rendezvous import rendezvous

from aladin_network.errors import ConfigError, ProcessLostError, ReportedElsewhereError
from aladin_network.scoring.masking import lengthened
from aladin_network.scoring.scores import EncodedBatch

# The other processes wait while the first one fills caches, mines or validates, which may take
# hours; torchrun ends them if it fails.
_PATIENCE = timedelta(days=7)
# Counts the failed processes, in the key-value store that torchrun keeps for all of them.
_FAILURES = "aladin/failures"

T = TypeVar("T")

# Gradients are exchanged in bundles: with many small messages, the processes would wait for each.
_BUNDLE_BYTES = 64 * 2**20


class BatchShare(NamedTuple):
    """The part of every batch that one process encodes."""

    rank: int
    world: int

    def photos(self, batch_size: int) -> slice:
        """Return this process's photos of a batch; the sizes of shares differ by one at most."""
        if batch_size < self.world:
            raise ConfigError(f"a batch of {batch_size} photos is too small for {self.world} parts")
        first, last = (batch_size * rank // self.world for rank in (self.rank, self.rank + 1))
        return slice(first, last)


def rank() -> int:
    """Return the number of this process, from 0."""
    return dist.get_rank() if dist.is_initialized() else 0


def world_size() -> int:
    """Return the number of processes."""
    return dist.get_world_size() if dist.is_initialized() else 1


def is_main_process() -> bool:
    """Tell whether this is the process that writes, validates and logs."""
    return rank() == 0


def own_share() -> BatchShare:
    """Return the part of every batch that this process encodes."""
    return BatchShare(rank=rank(), world=world_size())


@contextmanager
def distributed_job() -> Generator[None]:
    """Join the processes that torchrun started, for the duration of the block.

    Tensors on a GPU are exchanged by nccl, all others by gloo. Each process has one GPU, which is
    the current device inside the block, so that "cuda" refers to it.

    Raises:
        ConfigError: If there are more processes on this machine than GPUs.
        ReportedElsewhereError: If this process failed after another one, which reports the cause.
    """
    if int(os.environ.get("WORLD_SIZE", "1")) == 1:
        yield
        return
    store, number, world = next(rendezvous("env://", timeout=_PATIENCE))
    try:
        backend = _choose_device()
        dist.init_process_group(
            backend, store=store, rank=number, world_size=world, timeout=_PATIENCE
        )
        yield
    except Exception as error:
        if store.add(_FAILURES, 1) > 1:
            raise ReportedElsewhereError from error
        raise
    dist.destroy_process_group()


def _choose_device() -> str:
    """Make this process's GPU the current one; return the backend that exchanges its tensors."""
    if not torch.cuda.is_available():
        return "gloo"
    number, gpus = int(os.environ.get("LOCAL_RANK", "0")), torch.cuda.device_count()
    if number >= gpus:
        raise ConfigError(f"more processes than GPUs: this machine has {gpus}")
    torch.cuda.set_device(number)
    return "cpu:gloo,cuda:nccl"


def check_even_shares(batch_size: int) -> None:
    """Refuse a batch that the processes cannot share evenly."""
    if batch_size % world_size():
        raise ConfigError(
            f"a batch of {batch_size} photos cannot be shared evenly by {world_size()} "
            "processes; the batch_size of a stage is that of all processes together"
        )


@contextmanager
def collective() -> Generator[None]:
    """Wrap a collective operation, in which all processes take part."""
    try:
        yield
    except RuntimeError as error:  # the class, or a base class, of the errors of gloo and nccl
        raise ProcessLostError(str(error)) from error


def wait_for_all() -> None:
    """Wait until every process has reached this call."""
    if world_size() > 1:
        with collective():
            dist.all_reduce(torch.zeros(1))  # on the CPU: a GPU would spin


@contextmanager
def main_process_first() -> Generator[None]:
    """Run the block in the first process, then in the others, which find what it has written."""
    if not is_main_process():
        wait_for_all()
    yield
    if is_main_process():
        wait_for_all()


def broadcast_value(value: T) -> T:
    """Return the first process's value in every process."""
    if world_size() == 1:
        return value
    values = [value]
    with collective():
        dist.broadcast_object_list(values, device=torch.device("cpu"))
    return values[0]


def gather_results(rows: Tensor) -> Tensor:
    """Join the rows of all processes for a computation that all repeat identically: a loss.

    Every process then has the whole gradient, and keeps that of its own rows.
    """
    return _gather(rows, summed=False)


def gather_inputs(texts: EncodedBatch) -> EncodedBatch:
    """Join the encodings of all processes for computations that differ between processes.

    The gradient is the sum of the processes' gradients.
    """
    if world_size() == 1:
        return texts
    longest = torch.tensor(texts.mask.shape[1])
    with collective():
        dist.all_reduce(longest, dist.ReduceOp.MAX)
    length = int(longest)
    return EncodedBatch(
        embedding=_gather(texts.embedding, summed=True),
        tokens=_gather(lengthened(texts.tokens, length), summed=True),
        mask=_gather(lengthened(texts.mask, length), summed=True),
    )


def sum_over_processes(values: Tensor) -> Tensor:
    """Return the sum of a tensor over all processes, in every process."""
    if world_size() > 1:
        values = values.clone()
        with collective():
            dist.all_reduce(values)
    return values


def sum_gradients(shared: Iterable[nn.Parameter], alike: Iterable[nn.Parameter]) -> None:
    """Sum gradients over all processes.

    Of those of `shared` each process has found a part, of those of `alike` the whole: they count
    once.
    """
    if world_size() == 1:
        return
    counted_once = [value.grad for value in alike if value.grad is not None]
    for gradient in counted_once:
        gradient.div_(world_size())
    parts = [value.grad for value in shared if value.grad is not None]
    for bundle in _bundles([*parts, *counted_once]):
        flat = torch.cat([gradient.flatten() for gradient in bundle])
        with collective():
            dist.all_reduce(flat)
        sizes = [gradient.numel() for gradient in bundle]
        for gradient, total in zip(bundle, flat.split(sizes), strict=True):
            gradient.copy_(total.view_as(gradient))


@torch.no_grad()
def broadcast_weights(module: nn.Module) -> None:
    """Copy the first process's parameters and statistics to all processes."""
    if world_size() == 1:
        return
    for value in (*module.parameters(), *module.buffers()):
        if value.is_floating_point():  # other buffers are constants
            sent = value.contiguous()
            with collective():
                dist.broadcast(sent, src=0)
            value.copy_(sent)


def _gather(rows: Tensor, *, summed: bool) -> Tensor:
    if world_size() == 1:
        return rows
    if rows.dtype == torch.bool:  # gloo does not support bool
        return _gather(rows.byte(), summed=summed).bool()
    gathered = _Gather.apply(rows, summed)
    assert isinstance(gathered, Tensor)
    return gathered


class _Gather(torch.autograd.Function):
    """Joins the rows of all processes in the order of their ranks."""

    @staticmethod
    def forward(ctx: Any, rows: Tensor, summed: bool) -> Tensor:  # type: ignore[override]
        ctx.summed, ctx.count = summed, rows.shape[0]
        parts = [torch.empty_like(rows) for _ in range(world_size())]
        if rows.numel():
            with collective():
                dist.all_gather(parts, rows.contiguous())
        return torch.cat(parts)

    @staticmethod
    def backward(ctx: Any, *grad_outputs: Tensor) -> tuple[Tensor, None]:
        grad = grad_outputs[0]
        if ctx.summed and grad.numel():
            grad = grad.clone(memory_format=torch.contiguous_format)
            with collective():
                dist.all_reduce(grad)
        return grad[rank() * ctx.count : (rank() + 1) * ctx.count], None


def _bundles(gradients: list[Tensor]) -> Iterator[list[Tensor]]:
    """Group gradients of one dtype, up to a number of bytes."""
    bundle: list[Tensor] = []
    held_bytes = 0
    for gradient in sorted(gradients, key=lambda each: str(each.dtype)):
        full = held_bytes + gradient.nbytes > _BUNDLE_BYTES
        if bundle and (full or gradient.dtype != bundle[0].dtype):
            yield bundle
            bundle, held_bytes = [], 0
        bundle.append(gradient)
        held_bytes += gradient.nbytes
    if bundle:
        yield bundle

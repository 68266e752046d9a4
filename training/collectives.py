"""Tensors of all processes, and where the gradients of what is made of them go."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import torch
from torch import Tensor, nn
from torch import distributed as dist

from aladin.encoding import Encoding
from aladin.masking import lengthened
from training.distributed import rank, together, world_size

# Gradients travel in bundles: many small messages would each wait for all processes.
_BUNDLE_BYTES = 64 * 2**20


def gather_results(rows: Tensor) -> Tensor:
    """Join the rows of all processes for what each of them goes on to compute alike: a loss.

    Every process has the whole gradient then, and keeps that of its own rows.

    Args:
        rows: (own, ...), as many in every process.
    """
    return _gather(rows, summed=False)


def gather_inputs(texts: Encoding) -> Encoding:
    """Join the encodings of all processes, from which each computes results of its own.

    Their gradient is the sum of what the processes find.

    Args:
        texts: as many in every process; shorter ones are padded.
    """
    if world_size() == 1:
        return texts
    longest = torch.tensor(texts.mask.shape[1])
    with together():
        dist.all_reduce(longest, dist.ReduceOp.MAX)
    length = int(longest)
    return Encoding(
        embedding=_gather(texts.embedding, summed=True),
        tokens=_gather(lengthened(texts.tokens, length), summed=True),
        mask=_gather(lengthened(texts.mask, length), summed=True),
    )


def sum_gradients(shared: Iterable[nn.Parameter], alike: Iterable[nn.Parameter]) -> None:
    """Add the gradients of all processes up.

    Args:
        shared: each process has found a part of their gradient.
        alike: each process has found their whole gradient; it is counted once.
    """
    if world_size() == 1:
        return
    counted_once = [value.grad for value in alike if value.grad is not None]
    for gradient in counted_once:
        gradient.div_(world_size())
    parts = [value.grad for value in shared if value.grad is not None]
    for bundle in _bundles([*parts, *counted_once]):
        flat = torch.cat([gradient.flatten() for gradient in bundle])
        with together():
            dist.all_reduce(flat)
        sizes = [gradient.numel() for gradient in bundle]
        for gradient, total in zip(bundle, flat.split(sizes), strict=True):
            gradient.copy_(total.view_as(gradient))


@torch.no_grad()
def copy_from_first(module: nn.Module) -> None:
    """Give every process the first one's parameters and statistics."""
    if world_size() == 1:
        return
    for value in (*module.parameters(), *module.buffers()):
        if value.is_floating_point():  # other buffers are constants
            sent = value.contiguous()
            with together():
                dist.broadcast(sent, src=0)
            value.copy_(sent)


def _gather(rows: Tensor, *, summed: bool) -> Tensor:
    if world_size() == 1:
        return rows
    if rows.dtype == torch.bool:  # gloo has no such numbers
        return _gather(rows.byte(), summed=summed).bool()
    gathered = _Gather.apply(rows, summed)
    assert isinstance(gathered, Tensor)
    return gathered


class _Gather(torch.autograd.Function):
    """The rows of all processes, in the order of their ranks."""

    @staticmethod
    def forward(ctx: Any, rows: Tensor, summed: bool) -> Tensor:  # type: ignore[override]
        ctx.summed, ctx.count = summed, rows.shape[0]
        parts = [torch.empty_like(rows) for _ in range(world_size())]
        if rows.numel():
            with together():
                dist.all_gather(parts, rows.contiguous())
        return torch.cat(parts)

    @staticmethod
    def backward(ctx: Any, *grad_outputs: Tensor) -> tuple[Tensor, None]:
        grad = grad_outputs[0]
        if ctx.summed and grad.numel():
            grad = grad.clone(memory_format=torch.contiguous_format)
            with together():
                dist.all_reduce(grad)
        return grad[rank() * ctx.count : (rank() + 1) * ctx.count], None


def _bundles(gradients: list[Tensor]) -> Iterator[list[Tensor]]:
    """Group gradients of one number format, up to so many bytes."""
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

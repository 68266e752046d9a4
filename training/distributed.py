"""The processes of one training job: who is who, and how they wait for each other.

``torchrun`` starts them and tells each through its environment how to find the others. Without it
there is one process, and everything here is the plain case.
"""

from __future__ import annotations

import os
from collections.abc import Generator
from contextlib import contextmanager
from datetime import timedelta
from typing import TypeVar

import torch
from torch import distributed as dist
from torch.distributed.rendezvous import rendezvous

from aladin.errors import ConfigError, ProcessLostError, ToldElsewhereError
from training.batches import Share

# The others wait while the first process fills caches, mines or validates: that may take hours,
# and torchrun ends them should it fail.
_PATIENCE = timedelta(days=7)
# Counts the processes that failed, in the store that torchrun keeps for all of them.
_FAILURES = "aladin/failures"

T = TypeVar("T")


def rank() -> int:
    """Return this process's number, from 0."""
    return dist.get_rank() if dist.is_initialized() else 0


def world_size() -> int:
    """Return the number of processes."""
    return dist.get_world_size() if dist.is_initialized() else 1


def is_first() -> bool:
    """Tell whether this is the process that writes, validates and talks."""
    return rank() == 0


def own_share() -> Share:
    """Return which part of every batch this process encodes."""
    return Share(rank=rank(), world=world_size())


@contextmanager
def joined_job() -> Generator[None]:
    """Join the processes that torchrun started, for the time of the block.

    Tensors of a GPU travel by nccl, all others by gloo. Each process has a GPU to itself, the
    current one inside the block, so that "cuda" means it.

    Raises:
        ConfigError: there are more processes on this machine than GPUs.
        ToldElsewhereError: this process failed after another, whose error is the one to read.
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
            raise ToldElsewhereError from error
        raise
    dist.destroy_process_group()


def _choose_device() -> str:
    """Make this process's GPU the current one; return what its tensors travel by."""
    if not torch.cuda.is_available():
        return "gloo"
    number, gpus = int(os.environ.get("LOCAL_RANK", "0")), torch.cuda.device_count()
    if number >= gpus:
        raise ConfigError(f"more processes than GPUs: this machine has {gpus}")
    torch.cuda.set_device(number)
    return "cpu:gloo,cuda:nccl"


def check_divides(batch_size: int) -> None:
    """Refuse a batch that the processes cannot share evenly.

    Raises:
        ConfigError: the number of processes does not divide it.
    """
    if batch_size % world_size():
        raise ConfigError(
            f"a batch of {batch_size} photos cannot be shared evenly by {world_size()} "
            "processes; the batch_size of a stage is that of all processes together"
        )


@contextmanager
def together() -> Generator[None]:
    """Surround what the processes do in step.

    Raises:
        ProcessLostError: another one has ended meanwhile.
    """
    try:
        yield
    except RuntimeError as error:  # gloo and nccl raise this class, or one of torch's below it
        raise ProcessLostError(str(error)) from error


def wait() -> None:
    """Wait until every process has come here."""
    if world_size() > 1:
        with together():
            dist.all_reduce(torch.zeros(1))  # on the CPU: a GPU would spin


@contextmanager
def first_goes_ahead() -> Generator[None]:
    """Let the first process run the block, then the others, who find what it has written."""
    if not is_first():
        wait()
    yield
    if is_first():
        wait()


def agreed(value: T) -> T:
    """Return the first process's value to all."""
    if world_size() == 1:
        return value
    values = [value]
    with together():
        dist.broadcast_object_list(values, device=torch.device("cpu"))
    return values[0]

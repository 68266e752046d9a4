"""One training step, for any batch size and any number of processes.

1. Each process encodes its own photos and texts.
2. The encodings are detached from the encoders. Scores and losses of the whole batch are computed
   from those of all processes, and their gradient ends at the detached encodings.
3. The gradients at the detached encodings are propagated back through the encoders.
4. The gradients of the parameters are summed over the processes.

With chunks (GradCache, Gao et al. 2021) step 1 keeps no graph, and step 3 encodes again, chunk by
chunk and with the same random numbers: memory holds one chunk's graph, at the cost of a second
forward pass. Either way the gradient is that of the whole batch.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager
from typing import Generic, Protocol, TypeVar, cast

import torch
from torch import Tensor
from torch.nn.modules.batchnorm import _BatchNorm  # pyright: ignore[reportPrivateUsage]

from aladin_network.encoders.base import to_device
from aladin_network.errors import ConfigError
from aladin_network.scoring.scores import EncodedBatch, concatenate
from aladin_training.batches.batch import Batch
from aladin_training.parallel.distributed import (
    check_even_shares,
    sum_gradients,
    sum_over_processes,
)
from aladin_training.parallel.numerics import (
    Precision,
    RandomState,
    mixed_precision,
    preserved_random_state,
)
from aladin_training.tasks.joint import JointTask, LossReport, OnlineBranches

Inputs = TypeVar("Inputs", bound=Tensor | tuple[Tensor, ...])
Autocast = Callable[[], AbstractContextManager[object]]


def compute_gradients(
    task: JointTask | OnlineBranches,
    batch: Batch,
    precision: Precision,
    chunk_size: int | None,
    scaler: torch.amp.GradScaler,
    *,
    measure_shares: bool = False,
) -> LossReport:
    """Accumulate the gradient of a batch's loss in the trained parameters of all processes.

    The batch is this process's share. A chunk is the photos, or texts, that are encoded at a time.
    To measure the share of a task in the gradient costs a backward pass from its loss to the
    encodings, and changes nothing of the step.
    """
    check_even_shares(len(batch.negatives))
    device = next(task.parameters()).device
    autocast = functools.partial(mixed_precision, precision, device)
    if chunk_size is None:  # otherwise each chunk is moved before it is encoded
        batch = batch.to(device)
    encodings = DetachedEncodings(device, chunk_size, autocast)
    with autocast():
        report = task(batch, encodings)
    if measure_shares:
        scaled = {name: scaler.scale(loss) for name, loss in report.weighted.items()}
        report = report._replace(shares=shares_of(encodings.gradient_norms(scaled)))
    scaler.scale(report.total).backward()
    encodings.backward()
    sum_gradients(
        # Every process scores its own rows, but computes the whole loss of all rows.
        shared=[value for branch in task.branches for value in branch.model.parameters()],
        alike=[value for branch in task.branches for value in branch.terms.parameters()],
    )
    return report


def shares_of(norms: Mapping[str, float]) -> dict[str, float]:
    """Divide norms by their sum; without any gradient all shares are 0."""
    total = sum(norms.values())
    return {name: norm / total if total else 0.0 for name, norm in norms.items()}


def check_no_batch_statistics(task: JointTask | OnlineBranches) -> None:
    """Refuse a network whose encodings depend on what else is encoded at the same time."""
    task.train()
    if any(isinstance(module, _BatchNorm) and module.training for module in task.modules()):
        raise ConfigError(
            "this network trains batch normalisation, whose statistics are those of the whole "
            "batch: remove chunk_size and train in one process, or freeze the encoder; a stage may "
            "then tune it with its running statistics"
        )


class DetachedEncodings:
    """Runs the encoders of one step, and later propagates gradients back through them."""

    def __init__(self, device: torch.device, chunk_size: int | None, autocast: Autocast) -> None:
        """Begin a step."""
        self._device = device
        self._chunk_size = chunk_size
        self._autocast = autocast
        self._cuts: list[_Detached] = []

    def __call__(self, encoder: Callable[[Inputs], EncodedBatch], inputs: Inputs) -> EncodedBatch:
        """Run an encoder; the returned encoding is detached from its graph."""
        chunks = list(_chunks(inputs, self._chunk_size))
        if not torch.is_grad_enabled():  # an anchor or a teacher
            return concatenate([encoder(to_device(chunk, self._device)) for chunk in chunks])
        if len(chunks) == 1:
            cut: _Detached = _KeptGraph(encoder(to_device(inputs, self._device)))
        else:
            cut = _Recomputed(encoder, chunks, self._device, self._autocast)
        self._cuts.append(cut)
        return cut.leaf

    def gradient_norms(self, losses: Mapping[str, Tensor]) -> dict[str, float]:
        """Return the norm of the gradient of each loss at all encodings of all processes.

        The graph is kept, and no gradient is accumulated; call it outside of autocast.
        """
        outputs = [output for cut in self._cuts for output in (cut.leaf.embedding, cut.leaf.tokens)]
        leaves = [output for output in outputs if output.requires_grad]
        squares: list[Tensor] = []
        for loss in losses.values():
            square = torch.zeros((), dtype=torch.float64, device=self._device)
            if loss.requires_grad:  # that of a branch without anchors is a constant
                # Zeros where a loss does not read an encoding.
                for gradient in torch.autograd.grad(
                    loss, leaves, retain_graph=True, materialize_grads=True
                ):
                    square += gradient.double().square().sum()
            squares.append(square)
        norms = sum_over_processes(torch.stack(squares)).sqrt().tolist()
        return dict(zip(losses, norms, strict=True))

    def backward(self) -> None:
        """Propagate the gradients back through the encoders; call once, outside of autocast."""
        while self._cuts:
            self._cuts.pop().backward()


class _Detached(Protocol):
    """A detached encoding, and the way back to its encoder."""

    leaf: EncodedBatch

    def backward(self) -> None:
        """Propagate the leaf's gradient back."""
        ...


class _KeptGraph:
    """A detached encoding whose encoder's graph is kept."""

    def __init__(self, encoding: EncodedBatch) -> None:
        self._encoding = encoding
        self.leaf = EncodedBatch(
            embedding=_leaf(encoding.embedding, encoding.embedding.requires_grad),
            tokens=_leaf(encoding.tokens, encoding.tokens.requires_grad),
            mask=encoding.mask,
        )

    def backward(self) -> None:
        _push_back(self._encoding, _gradients(self.leaf))


class _Recomputed(Generic[Inputs]):
    """A detached encoding whose encoder runs once more, chunk by chunk."""

    def __init__(
        self,
        encoder: Callable[[Inputs], EncodedBatch],
        chunks: list[Inputs],
        device: torch.device,
        autocast: Autocast,
    ) -> None:
        self._encoder = encoder
        self._chunks = chunks
        self._device = device
        self._autocast = autocast
        self._random_states: list[RandomState] = []
        parts: list[EncodedBatch] = []
        with torch.no_grad():
            for chunk in chunks:
                self._random_states.append(RandomState.now(device))
                parts.append(encoder(to_device(chunk, device)))
        # Autocast would otherwise reuse the weights that it has converted here without a graph.
        torch.clear_autocast_cache()
        embedding, tokens, mask = concatenate(parts)
        # Without a graph, frozen parts cannot be told apart: their gradient is computed but not
        # used.
        self.leaf = EncodedBatch(_leaf(embedding, True), _leaf(tokens, True), mask)

    def backward(self) -> None:
        embedding, tokens = _gradients(self.leaf)
        if embedding is None and tokens is None:  # no loss has read this encoding
            return
        first = 0
        with preserved_random_state(self._device):
            for chunk, random_state in zip(self._chunks, self._random_states, strict=True):
                random_state.restore()
                with self._autocast():
                    encoding = self._encoder(to_device(chunk, self._device))
                rows = slice(first, first + encoding.size)
                length = encoding.mask.shape[1]  # without the padding of longer chunks
                _push_back(
                    encoding,
                    (
                        embedding[rows] if embedding is not None else None,
                        tokens[rows, :length] if tokens is not None else None,
                    ),
                )
                first = rows.stop


def _chunks(inputs: Inputs, size: int | None) -> Iterator[Inputs]:
    """Split a batch, or each part of one, into groups of `size` items."""
    items = inputs.shape[0] if isinstance(inputs, Tensor) else inputs[0].shape[0]
    for start in range(0, items, size or items):
        rows = slice(start, start + (size or items))
        if isinstance(inputs, Tensor):
            yield cast(Inputs, inputs[rows])
        else:
            yield type(inputs)(*(part[rows] for part in inputs))


def _leaf(values: Tensor, learns: bool) -> Tensor:
    """Return the same values as the start of a new graph."""
    return values.detach().requires_grad_(learns)


def _gradients(leaf: EncodedBatch) -> tuple[Tensor | None, Tensor | None]:
    return leaf.embedding.grad, leaf.tokens.grad


def _push_back(encoding: EncodedBatch, gradients: tuple[Tensor | None, Tensor | None]) -> None:
    """Continue the backward pass behind a detached encoding, if a loss has read it."""
    outputs = (encoding.embedding, encoding.tokens)
    reached = [
        (output, gradient)
        for output, gradient in zip(outputs, gradients, strict=True)
        if gradient is not None and output.requires_grad
    ]
    if reached:
        outputs, gradients = zip(*reached, strict=True)
        torch.autograd.backward(outputs, gradients)

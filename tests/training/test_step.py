"""A step in chunks has the loss and the gradients of the whole batch, for every kind of task."""

from __future__ import annotations

import math
from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from aladin_network.errors import ConfigError
from aladin_network.scoring.scores import EncodedBatch, concatenate
from aladin_training.config.stage import TASK_NAMES, TaskConfig
from aladin_training.parallel.numerics import loss_scaler
from aladin_training.step import (
    Inputs,
    check_no_batch_statistics,
    compute_gradients,
)
from benchmarks.training.step_memory import counting_kept_bytes
from tests.training.step_cases import CASES, PHOTOS, Case, batch_of, gradients, task_of

CPU = torch.device("cpu")
UNSCALED = loss_scaler("float32", CPU)


def assert_same_gradients(ours: dict[str, Tensor], theirs: dict[str, Tensor]) -> None:
    assert ours.keys() == theirs.keys()
    assert any(bool(value.any()) for value in theirs.values())
    for name, value in theirs.items():
        torch.testing.assert_close(ours[name], value, rtol=1e-5, atol=1e-5, msg=name)


def test_all_kinds_are_tested() -> None:
    """A task of one score stands for those of the others."""

    def kind(task: str) -> str:
        return task.partition("_")[2] or task

    tested = {kind(task) for case in CASES.values() for task in case.tasks}
    assert tested >= {kind(task) for task in TASK_NAMES}


@pytest.mark.parametrize("chunk_size", [None, 4])
@pytest.mark.parametrize("kind", sorted(CASES))
def test_a_step_equals_backward_through_the_whole_batch(kind: str, chunk_size: int | None) -> None:
    case = CASES[kind]
    batch, plain, ours = batch_of(case), task_of(case), task_of(case)
    expected = plain(batch)
    expected.total.backward()
    report = compute_gradients(ours, batch, "float32", chunk_size, UNSCALED)
    torch.testing.assert_close(report.total, expected.total, rtol=1e-5, atol=1e-5)
    assert report.terms.keys() == expected.terms.keys()
    assert_same_gradients(gradients(ours), gradients(plain))


# Of captions, of a batch's further photos, and of one, two and three networks.
DROPPED = ["matching", "captions", "quintuplet", "teacher", "online anchors", "momentum anchors"]


@pytest.mark.parametrize("kind", DROPPED)
def test_chunks_are_encoded_again_with_the_same_dropout(kind: str) -> None:
    """The reference keeps the graph of every chunk."""

    def in_chunks(encoder: Callable[[Inputs], EncodedBatch], inputs: Inputs) -> EncodedBatch:
        if isinstance(inputs, Tensor):
            parts = list(inputs.split(4))
        else:
            parts = [
                type(inputs)(*group)
                for group in zip(*(part.split(4) for part in inputs), strict=True)
            ]
        return concatenate([encoder(part) for part in parts])

    case = CASES[kind]
    batch = batch_of(case)
    plain, ours = task_of(case, dropout=0.3), task_of(case, dropout=0.3)
    torch.manual_seed(3)
    expected = plain(batch, in_chunks)
    expected.total.backward()
    after = torch.get_rng_state()
    torch.manual_seed(3)
    report = compute_gradients(ours, batch, "float32", 4, UNSCALED)
    torch.testing.assert_close(report.total, expected.total, rtol=1e-5, atol=1e-5)
    assert_same_gradients(gradients(ours), gradients(plain))
    assert torch.equal(torch.get_rng_state(), after)  # what comes next does not see the chunks
    again = compute_gradients(ours, batch, "float32", 4, UNSCALED)
    assert not torch.equal(again.total, report.total)  # dropout is drawn anew in every step


def test_half_precision_in_chunks_reaches_every_weight() -> None:
    """Autocast must not use a conversion that was made without a graph."""
    case = CASES["distillation"]
    batch, plain, ours = batch_of(case), task_of(case), task_of(case)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        expected = plain(batch)
    expected.total.backward()
    compute_gradients(ours, batch, "bfloat16", 4, UNSCALED)
    found, wanted = gradients(ours), gradients(plain)
    assert found.keys() == wanted.keys()
    for name, value in wanted.items():
        torch.testing.assert_close(found[name], value, rtol=0.1, atol=0.02, msg=name)


def test_a_scaled_loss_scales_the_gradient() -> None:
    case = CASES["alignment"]
    batch, plain, ours = batch_of(case), task_of(case), task_of(case)
    compute_gradients(plain, batch, "float32", 4, UNSCALED)
    scaler = torch.amp.GradScaler("cpu", init_scale=8.0)
    report = compute_gradients(ours, batch, "float32", 4, scaler)
    assert math.isfinite(report.total.item())
    scaled = {name: value / 8 for name, value in gradients(ours).items()}
    assert_same_gradients(scaled, gradients(plain))


def test_tasks_without_weight_have_no_share() -> None:
    tasks = {name: TaskConfig(loss="triplet", weight=0) for name in ("matching", "matching:again")}
    task, batch = task_of(Case(tasks)), batch_of(Case(tasks))
    report = compute_gradients(task, batch, "float32", 4, UNSCALED, measure_shares=True)
    assert report.shares == dict.fromkeys(tasks, 0.0)


SEVERAL = ["distillation", "intra-modal", "quintuplet", "online anchors"]


@pytest.mark.parametrize(
    ("kind", "chunk_size"), [*((kind, 4) for kind in SEVERAL), ("distillation", None)]
)
def test_shares_are_those_of_separate_gradients(kind: str, chunk_size: int | None) -> None:
    """The reference takes the gradient of one task's loss at a time, at encodings of its own."""
    case = CASES[kind]
    batch, ours, plain = batch_of(case), task_of(case), task_of(case)
    report = compute_gradients(ours, batch, "float32", chunk_size, UNSCALED, measure_shares=True)
    compute_gradients(plain, batch, "float32", chunk_size, UNSCALED)
    assert_same_gradients(gradients(ours), gradients(plain))  # measuring changes nothing

    norms: dict[str, float] = {}
    for name in case.tasks:
        leaves: list[Tensor] = []

        def detached(
            encoder: Callable[[Inputs], EncodedBatch], inputs: Inputs, leaves: list[Tensor] = leaves
        ) -> EncodedBatch:
            encoding = encoder(inputs)
            learns = encoding.embedding.requires_grad
            cut = [each.detach().requires_grad_(learns) for each in encoding[:2]]
            leaves += cut if learns else []
            return EncodedBatch(cut[0], cut[1], encoding.mask)

        loss = plain(batch, detached).weighted[name]
        if loss.requires_grad:
            loss.backward()
        squares = [float(leaf.grad.square().sum()) for leaf in leaves if leaf.grad is not None]
        norms[name] = math.sqrt(sum(squares))
    assert sum(report.shares.values()) == pytest.approx(1)
    expected = {name: norm / sum(norms.values()) for name, norm in norms.items()}
    assert report.shares == pytest.approx(expected, rel=1e-4)


def test_memory_is_that_of_a_chunk() -> None:
    """Counts the bytes that autograd keeps for the backward pass, at their most."""

    def most_bytes(photos: int, chunk_size: int | None) -> int:
        task = task_of(case)
        whole = batch_of(case)
        times = photos // PHOTOS
        texts = type(whole.texts)(*(part.repeat(times, 1) for part in whole.texts))
        batch = whole._replace(
            images=whole.images.repeat(times, 1, 1, 1),
            texts=texts,
            negatives=~torch.eye(photos, dtype=torch.bool),
        )
        with counting_kept_bytes() as kept:
            compute_gradients(task, batch, "float32", chunk_size, UNSCALED)
        return kept.most

    case = CASES["gradient"]
    plain = most_bytes(24, None)
    chunked, twice = most_bytes(24, 3), most_bytes(48, 3)
    assert chunked < plain / 3
    assert twice < 1.6 * chunked  # what grows are the scores, and the cut encodings


def test_batch_normalisation_is_refused_where_it_is_trained() -> None:
    task = task_of(CASES["matching"])
    check_no_batch_statistics(task)
    task.model.add_module("normalised", torch.nn.BatchNorm2d(3).requires_grad_(False))
    check_no_batch_statistics(task)
    task.requires_grad_(True)
    with pytest.raises(ConfigError, match="batch normalisation"):
        check_no_batch_statistics(task)

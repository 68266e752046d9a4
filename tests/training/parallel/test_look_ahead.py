"""Threads and number formats: what comes next is made ready in order, settings hold in a block."""

from __future__ import annotations

import threading
from collections.abc import Generator

import pytest
import torch
from torch import nn

from aladin_training.parallel.numerics import Precision, loss_scaler, mixed_precision
from aladin_training.parallel.threads import prefetch, torch_threads

CPU = torch.device("cpu")


def threads_of_ours() -> list[threading.Thread]:
    return [each for each in threading.enumerate() if each.name.startswith("look-ahead")]


def test_everything_comes_once_and_in_order() -> None:
    assert list(prefetch((n for n in range(20)), 3)) == list(range(20))
    assert list(prefetch((n for n in ()), 1)) == []
    assert list(prefetch((n for n in [None, 0, None]), 2)) == [None, 0, None]
    assert not threads_of_ours()


def test_no_more_is_made_than_asked_for() -> None:
    made = 0

    def count() -> Generator[int]:
        nonlocal made
        for number in range(100):
            made += 1
            yield number

    items = prefetch(count(), 2)
    for number in range(5):
        assert next(items) == number
        assert made <= number + 1 + 2
    items.close()
    assert made <= 7


def test_the_next_is_made_while_one_is_worked_on() -> None:
    second_is_made = threading.Event()

    def two() -> Generator[int]:
        yield 1
        second_is_made.set()
        yield 2

    items = prefetch(two(), 1)
    assert next(items) == 1
    assert second_is_made.wait(5)
    assert list(items) == [2]


def test_an_error_comes_in_the_place_of_its_item() -> None:
    def breaking() -> Generator[int]:
        yield 1
        yield 2
        raise KeyError("three")

    items = prefetch(breaking(), 5)
    assert [next(items), next(items)] == [1, 2]
    with pytest.raises(KeyError, match="three"):
        next(items)
    assert not threads_of_ours()


@pytest.mark.parametrize("how", ["closed", "dropped"])
def test_stopping_early_ends_the_thread_and_closes_the_source(how: str) -> None:
    closed = threading.Event()

    def endless() -> Generator[int]:
        try:
            while True:
                yield 0
        finally:
            closed.set()

    items = prefetch(endless(), 2)
    next(items)
    assert threads_of_ours()
    if how == "closed":
        items.close()
    del items
    assert closed.is_set()
    assert not threads_of_ours()


def test_a_count_of_threads_is_given_back_even_after_an_error() -> None:
    before = torch.get_num_threads()
    with torch_threads(None):
        assert torch.get_num_threads() == before
    with pytest.raises(RuntimeError), torch_threads(before + 1):
        assert torch.get_num_threads() == before + 1
        raise RuntimeError
    assert torch.get_num_threads() == before


@pytest.mark.parametrize("precision", ["float32", "bfloat16", "float16"])
def test_matrices_are_multiplied_in_the_format_that_was_asked_for(precision: Precision) -> None:
    layer = nn.Linear(4, 4)
    with mixed_precision(precision, CPU):
        found = layer(torch.ones(1, 4))
    assert found.dtype == getattr(torch, precision)
    assert layer.weight.dtype == torch.float32
    assert loss_scaler(precision, CPU).is_enabled() == (precision == "float16")

"""What a step keeps follows the chunk; the table's ratios are to the whole graph."""

from __future__ import annotations

import torch

from benchmarks.training.step_memory import counting_kept_bytes, measure


def test_bytes_are_counted_while_they_are_kept() -> None:
    with counting_kept_bytes() as kept:
        squared = torch.ones(256, requires_grad=True).square()
        assert kept.now == 256 * 4
        squared.sum().backward()
        assert kept.now == 0
    assert kept.most == 256 * 4


def test_the_whole_graph_comes_first() -> None:
    whole, chunks = measure(6, [2], torch.device("cpu"))
    assert (whole["chunk"], whole["kept_ratio"], whole["time_ratio"]) == (6, 1, 1)
    assert chunks["chunk"] == 2
    assert chunks["kept_ratio"] < 0.6

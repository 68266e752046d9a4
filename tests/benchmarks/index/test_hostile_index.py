"""The attack on first stages with damaged bytes."""

from __future__ import annotations

import signal

import pytest

from benchmarks.index import hostile_index
from benchmarks.index.hostile_index import attack


@pytest.mark.parametrize("kind", ["IVF16,PQ32x4fs", "HNSW16,Flat"])
def test_damaged_files_are_searched_or_rejected(kind: str) -> None:
    told = attack(kind, 6, seed=1)
    assert told["searched"] + told["rejected"] == 6
    assert (told["ended"], told["unforeseen"], told["hung"]) == ({}, 0, 0)


def test_an_unforeseen_error_and_a_signal_are_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> object:
        raise MemoryError

    def end(*_: object) -> object:
        signal.raise_signal(signal.SIGKILL)

    monkeypatch.setattr(hostile_index.AnnIndex, "open", fail)
    assert attack("Flat", 1)["unforeseen"] == 1

    monkeypatch.setattr(hostile_index.AnnIndex, "open", end)
    assert attack("Flat", 2)["ended"] == {"SIGKILL": 2}

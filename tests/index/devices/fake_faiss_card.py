"""FAISS as its wheel with support for GPUs has it, and a GPU, computing on the processor."""

from __future__ import annotations

import threading
from typing import Any

import numpy as np
import torch

from aladin_index.ann import faiss
from aladin_index.devices.card import Card
from aladin_index.devices.faiss_card import FaissCard


class FakeFaiss:
    """The part of the module that `aladin_index.devices.faiss_card` uses.

    It refuses what a GPU refuses, and remembers its calls and which threads made them.
    """

    METRIC_INNER_PRODUCT = faiss.METRIC_INNER_PRODUCT

    def __init__(self, cards: int = 1) -> None:
        self.cards = cards
        self.wrong = False
        self.fails_at: int | None = None
        self.searches: list[tuple[str, int]] = []
        self.threads: set[str] = set()
        self.lists: list[FakeLists] = []

    class StandardGpuResources:
        """Working memory."""

        def setTempMemory(self, size: int) -> None:  # noqa: N802 (FAISS's name)
            assert size > 0

    def get_num_gpus(self) -> int:
        return self.cards

    def index_cpu_to_gpu(self, resources: object, card: int, index: Any) -> FakeLists:
        assert isinstance(resources, self.StandardGpuResources)
        assert card == 0
        self.lists.append(FakeLists(self, faiss.clone_index(index)))
        return self.lists[-1]

    def knn_gpu(
        self,
        resources: object,
        queries: torch.Tensor,
        vectors: torch.Tensor,
        count: int,
        metric: int,
    ) -> tuple[torch.Tensor, torch.Tensor]:
        assert isinstance(resources, self.StandardGpuResources)
        assert metric == self.METRIC_INNER_PRODUCT and queries.dtype == vectors.dtype
        self.note("all", len(queries), count)
        best = (queries.float() @ vectors.float().T).topk(count)
        return best.values, torch.zeros_like(best.indices) if self.wrong else best.indices

    def note(self, what: str, queries: int, count: int) -> None:
        assert 0 < count <= 2048
        self.searches.append((what, queries))
        self.threads.add(threading.current_thread().name)
        if self.fails_at is not None and len(self.searches) >= self.fails_at:
            raise RuntimeError("CUDA error 700: an illegal memory access was encountered")


class FakeLists:
    """Inverted lists on the GPU."""

    def __init__(self, library: FakeFaiss, index: Any) -> None:
        self.library, self.index, self.nprobe = library, index, 1

    def search(self, queries: np.ndarray, count: int) -> tuple[np.ndarray, np.ndarray]:
        self.library.note("lists", len(queries), count)
        parameters = faiss.SearchParametersIVF(nprobe=self.nprobe)
        return self.index.search(queries, count, params=parameters)


class FakeCard(Card):
    """A GPU whose memory has a size, and on which FAISS may search."""

    def __init__(
        self,
        library: FakeFaiss | None = None,
        dtype: torch.dtype = torch.float32,
        free_bytes: int = 2**40,
    ) -> None:
        faiss_card = None if library is None else FaissCard(library)
        super().__init__(torch.device("cpu"), dtype, faiss_card)
        self.free = free_bytes

    def free_bytes(self) -> int:
        return self.free

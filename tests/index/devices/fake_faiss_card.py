"""FAISS as its wheel with support for cards has it, computing on the processor."""

import threading
from typing import Any

import numpy as np

from aladin_index.ann import faiss


class FakeCopy:
    """An index on the card: refuses what a card refuses, and remembers which threads came."""

    def __init__(self, index: Any) -> None:
        self.index = index
        self.nprobe = 1
        self.threads: set[str] = set()
        self.searches = 0
        self.fails_at: int | None = None

    def add(self, vectors: np.ndarray) -> None:
        self.index.add(vectors)

    def search(self, queries: np.ndarray, count: int) -> tuple[np.ndarray, np.ndarray]:
        assert count <= 2048
        self.threads.add(threading.current_thread().name)
        self.searches += 1
        if self.fails_at is not None and self.searches >= self.fails_at:
            raise RuntimeError("CUDA error 700: an illegal memory access was encountered")
        parameters = None
        if isinstance(self.index, faiss.IndexIVF):
            parameters = faiss.SearchParametersIVF(nprobe=self.nprobe)
        return self.index.search(queries, count, params=parameters)


class FakeFaissCard:
    """The part of the module that `aladin_index.devices.first_stages` uses."""

    IndexIVFFlat = faiss.IndexIVFFlat
    IndexIVFScalarQuantizer = faiss.IndexIVFScalarQuantizer

    def __init__(self, cards: int = 1) -> None:
        self.cards = cards
        self.copies: list[FakeCopy] = []
        self.wrong = False

    class StandardGpuResources:
        """Working memory."""

    class GpuIndexFlatConfig:
        """Options."""

        useFloat16 = False  # noqa: N815 (FAISS's name)

    def get_num_gpus(self) -> int:
        return self.cards

    def index_cpu_to_gpu(self, resources: object, card: int, index: Any) -> FakeCopy:
        assert isinstance(resources, self.StandardGpuResources)
        assert card == 0
        return self._made(faiss.clone_index(index))

    def GpuIndexFlatIP(self, resources: object, dim: int, options: Any) -> FakeCopy:  # noqa: N802
        assert isinstance(resources, self.StandardGpuResources)
        assert options.useFloat16
        return self._made(
            faiss.IndexScalarQuantizer(
                dim, faiss.ScalarQuantizer.QT_fp16, faiss.METRIC_INNER_PRODUCT
            )
        )

    def _made(self, index: Any) -> FakeCopy:
        if self.wrong:
            index = faiss.IndexFlatL2(index.d)
            index.add(np.zeros((1, index.d), dtype=np.float32))
        self.copies.append(FakeCopy(index))
        return self.copies[-1]

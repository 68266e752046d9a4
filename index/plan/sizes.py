"""How many bytes an index takes: its formats, counted."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from index.plan.constants import FileConstants
from index.plan.first_stage import FirstStage
from index.plan.workload import Workload
from index.tokens.codec import CODE_BITS, TokenCodec

_EMBEDDING_VALUE_BYTES = 4
_OFFSET_BYTES = 8


class IndexSizes(NamedTuple):
    """Bytes of one generation of one side.

    Attributes:
        first_stage: FAISS's index.
        embeddings: float32, to compare candidates exactly.
        tokens: in their stored form, with where each item's begin.
        items: ids, texts, metadata and what filters look at.
    """

    first_stage: int
    embeddings: int
    tokens: int
    items: int

    @property
    def total(self) -> int:
        """Bytes of all parts."""
        return sum(self)

    @property
    def mapped(self) -> int:
        """Bytes that searches read through maps; items are looked up in their database."""
        return self.first_stage + self.embeddings + self.tokens


def embedding_bytes(workload: Workload) -> int:
    """Return the bytes of one embedding."""
    return _EMBEDDING_VALUE_BYTES * workload.embedding_dim


def token_bytes(workload: Workload) -> int:
    """Return the bytes of all stored tokens of one item."""
    dim, dtype = workload.token_dim, workload.token_dtype
    # Some forms have a codebook, which is none of a token's bytes.
    codebook = np.zeros((1, dim), dtype=np.float32) if dtype in CODE_BITS else None
    return workload.tokens * TokenCodec(dtype, dim, codebook).token_bytes


def index_sizes(workload: Workload, stage: FirstStage, files: FileConstants) -> IndexSizes:
    """Count the bytes of an index of files."""
    return IndexSizes(
        first_stage=stage.memory_bytes,
        embeddings=workload.items * embedding_bytes(workload),
        tokens=workload.items * (token_bytes(workload) + _OFFSET_BYTES),
        items=round(files.item_bytes * workload.items),
    )

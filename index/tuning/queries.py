"""Queries to tune an index with."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from aladin.encoding import Encoding
from index.modality import Modality
from index.side import Side


class TuneQueries(NamedTuple):
    """Encoded queries of one modality.

    Attributes:
        modality: of all of them.
        embeddings: (queries, d_match) float32, L2-normalised.
        tokens: the real tokens of each query, (any, d_align) float32.
    """

    modality: Modality
    embeddings: NDArray[np.float32]
    tokens: list[Tensor]


def queries_of_encoding(encoding: Encoding, modality: Modality) -> TuneQueries:
    """Take what the network made of some texts or photos."""
    return TuneQueries(
        modality,
        encoding.embedding.detach().float().cpu().contiguous().numpy(),
        [encoding.item_tokens(row).detach().float().cpu() for row in range(encoding.size)],
    )


def stored_queries(side: Side, count: int) -> TuneQueries:
    """Sample what an index stores of its items; the same ones each time.

    Args:
        side: to ask with.
        count: queries wanted; all items where there are fewer.
    """
    chosen = np.random.default_rng(0).permutation(side.entry.count)[:count]
    rows = np.sort(chosen).astype(np.int64)
    block = side.tokens.read(rows)
    tokens = torch.split(block.values, block.lengths.tolist())
    return TuneQueries(
        "image" if side.target == "images" else "text", side.embeddings[rows], list(tokens)
    )

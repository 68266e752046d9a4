"""Tries an opened index before anybody is answered from it.

Opening compares lengths and headers alone. A copy that was cut short and filled with zeros, an ANN
of another generation or a database with broken pages shows in use, so it is used: some items of
each side, from all over its files, are read and searched for through both stages. Every byte is
compared only by `index.verify`, which reads all of them.
"""

from __future__ import annotations

import math
from functools import partial

import numpy as np
import torch

from aladin.encoding import Encoding
from aladin.errors import AladinError, IndexCorruptError
from index.layout import generation_folder
from index.reader import SearchIndex
from index.searcher import TwoStageSearcher
from index.settings import Target
from index.side import ANN, EMBEDDINGS, ITEMS, Side

_PROBES = 8
_HITS = 10
# A graph or inverted lists may miss an item now and then, those of other vectors miss nearly all.
_FOUND_SHARE = 0.5
# Embeddings are normalised in float32 before they are written.
_NORM_TOLERANCE = 1e-3


def probe_index(index: SearchIndex) -> None:
    """Read and search some items of each side, without the network; takes milliseconds.

    Raises:
        IndexCorruptError: a part cannot be used, or says what cannot be; the message names it.
    """
    folder = generation_folder(index.path, index.generation)
    for target in index.manifest.targets:
        side = index.images if target == "images" else index.texts
        assert side is not None  # the manifest has it
        rows, place = _spread(side.entry.count), folder / target
        for path, probe in (
            (place / ITEMS, partial(_probe_items, side)),
            (place / EMBEDDINGS, partial(_probe_embeddings, side)),
            (place / ANN, partial(_probe_ann, side)),
            (place, partial(_probe_search, index, target)),
        ):
            try:
                fault = probe(rows)
            except AladinError:
                raise
            except Exception as error:  # what is broken breaks in ways that nobody foresaw
                fault = f"cannot be used ({type(error).__name__}: {error})"
            if fault is not None:
                raise IndexCorruptError(path, fault)


def _spread(count: int) -> list[int]:
    """Choose rows from the first to the last."""
    return sorted(set(np.linspace(0, count - 1, _PROBES).astype(int).tolist()))


def _probe_items(side: Side, rows: list[int]) -> str | None:
    for item in side.items.by_rows(rows):
        by_id = side.items.by_id(item.id)
        if by_id is None or by_id.row != item.row:
            found = "none" if by_id is None else f"row {by_id.row}"
            return f"id {item.id!r}: expected row {item.row}, found {found}"
    return None


def _probe_embeddings(side: Side, rows: list[int]) -> str | None:
    for row, norm in zip(rows, np.linalg.norm(side.embeddings[rows], axis=1), strict=True):
        if not abs(norm - 1) < _NORM_TOLERANCE:  # what is no number is not near 1 either
            return f"row {row}: expected a length of 1, got {norm:g}"
    return None


def _probe_ann(side: Side, rows: list[int]) -> str | None:
    # Few of all, so that hardly any is found by chance.
    count = min(_HITS, max(1, side.entry.count // 10))
    hits = 0
    for row in rows:
        query = np.array(side.embeddings[row])
        found = side.first_stage.search(query, count)
        if len(found) and not (found.min() >= 0 and found.max() < side.entry.count):
            return f"expected rows below {side.entry.count}, found {found.tolist()}"
        # Another item may have the very same embedding.
        hits += bool(len(found) and (side.embeddings[found] @ query).max() > 1 - _NORM_TOLERANCE)
    if hits < _FOUND_SHARE * len(rows):
        return f"it finds {hits} of {len(rows)} items by their own embeddings"
    return None


def _probe_search(index: SearchIndex, target: Target, rows: list[int]) -> str | None:
    """Search with stored items as though the other modality had them, so that both stages run."""
    searcher, side = TwoStageSearcher(index), index.side(target)
    modality = "text" if target == "images" else "image"
    expected = min(_HITS, side.count)
    for row in rows:
        tokens = side.tokens(row)
        query = Encoding(
            embedding=side.embedding(row).unsqueeze(0),
            tokens=tokens.unsqueeze(0),
            mask=torch.ones(1, tokens.shape[0], dtype=torch.bool),
        )
        hits = searcher.search(query, modality, target, top_k=_HITS).hits
        if len(hits) != expected:
            return f"a search for row {row}: expected {expected} hits, got {len(hits)}"
        if not all(math.isfinite(hit.score) for hit in hits):
            return f"a search for row {row}: found scores {[hit.score for hit in hits]}"
    return None

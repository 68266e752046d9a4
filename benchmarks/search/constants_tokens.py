"""What the stored forms of tokens take, and pages from the disk: for
`benchmarks.search.constants`."""

from __future__ import annotations

import os
import tempfile
import time
from pathlib import Path

import numpy as np
import torch

from aladin_index.format.npy import map_npy, write_npy
from aladin_index.plan.constants import FormConstants
from aladin_index.tokens.alignment import alignment_with_candidates
from aladin_index.tokens.store import TokenStore, codec_for
from aladin_network.types import TOKEN_DTYPES, TokenDtype
from benchmarks.lib.synthetic import SyntheticPhotos
from benchmarks.lib.synthetic_sources import TOKEN_DIM
from benchmarks.lib.timing import one_thread, quiet_median_s, quiet_time
from benchmarks.search.rerank import DIM, REGIONS, unit_vectors, write_store

_PACKED_PHOTOS, _TEXTS, _PACKS = 2048, 500, 3
_SETS, _REPETITIONS = 64, 200
# The kernel compares with 16 words at a time: fewer take as long.
_WORDS = (16, 64)
_CANDIDATES = (100, 400)
# Of a file that the system has to read; 256 MiB.
_PAGES, _PAGE_BYTES = 2**16, 4096
_COLD_ROUNDS, _COLD_PAGES = 15, 200


def measure_forms(photos: SyntheticPhotos, items: int) -> dict[TokenDtype, FormConstants]:
    """Measure packing and scoring in every form.

    Args:
        photos: whose tokens are packed.
        items: photos in the stores that are scored, whose tokens lie in random directions.
    """
    some = next(iter(photos.photos(_PACKED_PHOTOS))).tokens.reshape(-1, TOKEN_DIM)
    words = photos.queries(_TEXTS, _PACKED_PHOTOS).words
    forms: dict[TokenDtype, FormConstants] = {}
    for dtype in TOKEN_DTYPES:
        codec = codec_for(dtype, [some], words)
        times: list[float] = []
        for _ in range(_PACKS):
            with quiet_time() as packed:
                codec.pack(some)
            times.append(packed.seconds)
        value_s, score_s = _scoring(dtype, items)
        forms[dtype] = FormConstants(
            pack_s=min(times) / some.size, value_s=value_s, score_s=score_s
        )
    return forms


def measure_page() -> float:
    """Return the seconds to read a page from the disk where a search needs it.

    Of a mapped file whose pages the system was asked to forget.
    """
    random = np.random.default_rng(0)
    pages = random.integers(0, 256, (_PAGES, _PAGE_BYTES), dtype=np.uint8)
    times: list[float] = []
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "pages.npy"
        write_npy(path, np.uint8, pages.shape, [pages])
        with path.open("rb") as file:
            os.fsync(file.fileno())  # what is not on the disk yet cannot be forgotten
            for _ in range(_COLD_ROUNDS):
                os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
                mapped = map_npy(path, np.uint8, pages.shape, random=True)
                chosen = random.choice(_PAGES, _COLD_PAGES, replace=False)
                started = time.perf_counter()
                for page in chosen:
                    int(mapped[page, 0])
                times.append(time.perf_counter() - started)
                del mapped
    return float(np.median(times)) / _COLD_PAGES


def _scoring(dtype: TokenDtype, items: int) -> tuple[float, float]:
    """Return the seconds to read a value of a candidate, and to compare it with a word."""
    with tempfile.TemporaryDirectory() as folder:
        sample = unit_vectors(256 * 39, seed=1)
        store = write_store(Path(folder) / dtype, sample, np.full(items, REGIONS), dtype)
        with one_thread():
            slopes = [_candidate_s(store, words, items) for words in _WORDS]
    values = REGIONS * DIM
    score_s = max(0.0, (slopes[1] - slopes[0]) / (_WORDS[1] - _WORDS[0]))
    return max(0.0, slopes[1] - score_s * _WORDS[1]) / values, score_s / values


def _candidate_s(store: TokenStore, words: int, items: int) -> float:
    """Return the seconds that one more candidate takes."""
    random = np.random.default_rng(0)
    query = torch.from_numpy(unit_vectors(words, seed=2))

    def seconds(count: int) -> float:
        rows = [random.choice(items, count, replace=False) for _ in range(_SETS)]
        return quiet_median_s(
            lambda turn: alignment_with_candidates(query, "text", store, rows[turn % _SETS]),
            _REPETITIONS,
        )

    few, many = _CANDIDATES
    return (seconds(many) - seconds(few)) / (many - few)

"""Times re-ranking of photos for one text: this project's kernel and alternatives.

    python -m benchmarks.search.rerank [--json] [--quick] [--items 20000] [--repetitions 200]

A text of 12 words, photos of 49 regions, tokens of 128 dimensions, one thread; the median time at
100 and at 1,000 candidates. The alternatives are installable packages, each in its fastest form.
All are timed in turn, repetition by repetition, so that other load on the machine slows all of them
and ratios remain comparable. Every repetition has other candidates; the page cache is warm.

`candidates.100` and `candidates.1000` contain a `..._ms` for each of these:

ours        the whole call on a memory-mapped int8 store, including reading scattered candidates
torch_bf16  one matrix product on tokens that are already gathered, contiguous and in bfloat16
torch_f32   the same in float32
numpy       the same with NumPy
maxsim_cpu  the same with the PyPI package maxsim-cpu; null if it is not installed

`ours_over_fastest` is `ours` divided by the fastest alternative.

`more` contains the others: `torch_f32_medium` with PyTorch's reduced precision, `torch_int8` with
int8 words and regions, ours on the other stored forms, our fallback in numpy (`ours_numpy`), two
queries with half of the candidates each (`ours_two_queries`), and as `..._gathered` the
alternatives including the time to gather the candidates' tokens from a mapped store.
"""

from __future__ import annotations

import importlib
import sys
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from aladin_index.format.npy import map_npy, write_npy
from aladin_index.kernel import load_kernel
from aladin_index.tokens.maxsim import (
    alignment_of_queries,
    alignment_with_candidates,
    numpy_alignment,
)
from aladin_index.tokens.store import TokenStore
from aladin_network.types import TOKEN_DTYPES, TokenDtype
from benchmarks.lib.measuring import one_thread, time_in_turn
from benchmarks.lib.output import figures_parser, print_json, print_rows
from benchmarks.lib.synthetic_sources import REGIONS, TOKEN_DIM, unit_vectors, write_store

Score = Callable[[Any, Any], Any]

WORDS = 12
CANDIDATES = (100, 1000)
# Number of different queries; as many sets of candidates are prepared in memory for the engines
# that require that.
QUERIES = 8
# Number of candidate sets for the engines that read the store: together they do not fit into a
# cache.
ROW_SETS = 64
NAMED = ("ours", "torch_bf16", "torch_f32", "numpy", "maxsim_cpu")


def torch_matmul(words: Tensor, photos: Tensor) -> Tensor:
    """Compute one product of all regions and words, regions on the left: the fastest order.

    Args:
        words: (words, dim) float32 or bfloat16.
        photos: (photos, regions, dim) of the same dtype.
    """
    count, regions, dim = photos.shape
    similarity = photos.view(-1, dim) @ words.T  # (photos * regions, words)
    return similarity.view(count, regions, -1).amax(dim=1).sum(dim=1)


def torch_int8(words: tuple[Tensor, Tensor], photos: tuple[Tensor, Tensor]) -> Tensor:
    """Compute the same on int8, with a scale per token and word; `torch._int_mm` is private.

    Args:
        words: (words, dim) int8 and (words,) scales.
        photos: (photos, regions, dim) int8 and (photos, regions) scales.
    """
    values, scales = photos
    count, regions, dim = values.shape
    products = torch._int_mm(values.view(-1, dim), words[0].T)  # pyright: ignore[reportPrivateUsage, reportPrivateImportUsage]
    similarity = products.view(count, regions, -1) * scales.unsqueeze(2)
    return (similarity.amax(dim=1) * words[1]).sum(dim=1)


def numpy_matmul(words: NDArray[np.float32], photos: NDArray[np.float32]) -> NDArray[np.float32]:
    """Compute the same with NumPy.

    Args:
        words: (words, dim).
        photos: (photos, regions, dim).
    """
    count, regions, dim = photos.shape
    similarity = photos.reshape(-1, dim) @ words.T
    scores: NDArray[np.float32] = similarity.reshape(count, regions, -1).max(axis=1).sum(axis=1)
    return scores


def maxsim_cpu() -> Score | None:
    """Return the function of the PyPI package maxsim-cpu (NumPy), or None if not installed."""
    try:
        module = importlib.import_module("maxsim_cpu")
    except ImportError:
        print("maxsim-cpu is not installed: pip install --group bench", file=sys.stderr)
        return None
    score: Score = module.maxsim_scores
    return score


Run = Callable[[int], object]


@dataclass(frozen=True)
class Stores:
    """The same photos in several forms, mapped from disk.

    Attributes:
        ours: Stores of this project, by token form.
        f32: (photos, regions, dim) float32.
        bf16: The same values as `f32`, in bfloat16.
    """

    ours: dict[TokenDtype, TokenStore]
    f32: torch.Tensor
    bf16: torch.Tensor


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the measurements and print the results."""
    parser = figures_parser(__doc__, "a small store, few repetitions")
    parser.add_argument("--items", type=int, default=20_000, help="number of photos in the store")
    parser.add_argument("--repetitions", type=int, default=200, help="timed repetitions")
    options = parser.parse_args(arguments)
    items, repetitions = (1200, 5) if options.quick else (options.items, options.repetitions)
    with one_thread(), tempfile.TemporaryDirectory() as folder:
        report = measure(write_stores(Path(folder), items), items, repetitions)
    if options.json:
        print_json(report)
    else:
        print_table(report)


def measure(stores: Stores, items: int, repetitions: int) -> dict[str, Any]:
    """Time everything at each number of candidates."""
    kernel = load_kernel()
    report: dict[str, Any] = {
        "items": items,
        "words": WORDS,
        "regions": REGIONS,
        "dim": TOKEN_DIM,
        "threads": torch.get_num_threads(),
        "repetitions": repetitions,
        "path": kernel.paths[0] if kernel else "numpy",
        "candidates": {},
    }
    for count in CANDIDATES:
        times = time_in_turn(all_runs(stores, items, count), repetitions)
        p50 = {f"{name}_ms": round(float(np.median(each)), 4) for name, each in times.items()}
        entry: dict[str, Any] = {f"{name}_ms": p50.pop(f"{name}_ms", None) for name in NAMED}
        ready = [entry[f"{name}_ms"] for name in NAMED[1:] if entry[f"{name}_ms"] is not None]
        ready += [p50["torch_f32_medium_ms"], p50["torch_int8_ms"]]
        entry["ours_over_fastest"] = round(entry["ours_ms"] / min(ready), 3)
        report["candidates"][str(count)] = entry | {"more": p50}
    return report


def all_runs(stores: Stores, items: int, count: int) -> dict[str, Run]:
    """Return the functions to time; each takes the number of the repetition."""
    random = np.random.default_rng(count)
    rows = [random.choice(items, count, replace=False) for _ in range(ROW_SETS)]
    words = [unit_vectors(WORDS, seed=10 + query) for query in range(QUERIES)]
    tensors = [torch.from_numpy(each) for each in words]
    int8 = stores.ours["int8"]
    runs: dict[str, Run] = {
        "ours": lambda turn: alignment_with_candidates(
            words[turn % QUERIES], "text", int8, rows[turn % ROW_SETS]
        )
    }
    runs |= ready_runs(stores, rows, tensors) | gathering_runs(stores, rows, tensors)
    for dtype in TOKEN_DTYPES:
        if dtype != "int8":
            runs[f"ours_{dtype}"] = score_by(
                alignment_with_candidates, stores.ours[dtype], words, rows
            )
    runs["ours_numpy"] = score_by(numpy_alignment, int8, words, rows)
    half = count // 2
    runs["ours_two_queries"] = lambda turn: alignment_of_queries(
        [words[turn % QUERIES], words[(turn + 1) % QUERIES]],
        "text",
        int8,
        [rows[turn % ROW_SETS][:half], rows[turn % ROW_SETS][half:]],
    )
    return runs


def score_by(
    score: Callable[..., NDArray[np.float32]],
    store: TokenStore,
    words: list[NDArray[np.float32]],
    rows: list[NDArray[np.int64]],
) -> Run:
    """Return a run of a function like `alignment_with_candidates`."""
    return lambda turn: score(words[turn % QUERIES], "text", store, rows[turn % ROW_SETS])


def ready_runs(
    stores: Stores, rows: list[NDArray[np.int64]], words: list[torch.Tensor]
) -> dict[str, Run]:
    """Return the runs of the engines that score tokens already in memory."""
    photos = [stores.f32[torch.from_numpy(each)] for each in rows[:QUERIES]]
    halves = [each.bfloat16() for each in photos]
    word_halves = [each.bfloat16() for each in words]
    bytes_of = [quantise(each) for each in photos]
    word_bytes = [quantise(each) for each in words]

    def medium(turn: int) -> torch.Tensor:
        torch.set_float32_matmul_precision("medium")
        try:
            return torch_matmul(words[turn % QUERIES], photos[turn % QUERIES])
        finally:
            torch.set_float32_matmul_precision("highest")

    runs: dict[str, Run] = {
        "torch_bf16": lambda turn: torch_matmul(
            word_halves[turn % QUERIES], halves[turn % QUERIES]
        ),
        "torch_f32": lambda turn: torch_matmul(words[turn % QUERIES], photos[turn % QUERIES]),
        "torch_f32_medium": medium,
        "torch_int8": lambda turn: torch_int8(word_bytes[turn % QUERIES], bytes_of[turn % QUERIES]),
        "numpy": lambda turn: numpy_matmul(
            words[turn % QUERIES].numpy(), photos[turn % QUERIES].numpy()
        ),
    }
    score = maxsim_cpu()
    if score is not None:
        runs["maxsim_cpu"] = lambda turn: score(
            words[turn % QUERIES].numpy(), photos[turn % QUERIES].numpy()
        )
    return runs


def gathering_runs(
    stores: Stores, rows: list[NDArray[np.int64]], words: list[torch.Tensor]
) -> dict[str, Run]:
    """Return the runs of the engines that gather the candidates from a mapped store."""
    places = [torch.from_numpy(each) for each in rows]
    word_halves = [each.bfloat16() for each in words]
    runs: dict[str, Run] = {
        "torch_bf16_gathered": lambda turn: torch_matmul(
            word_halves[turn % QUERIES], stores.bf16.index_select(0, places[turn % ROW_SETS])
        ),
        "torch_f32_gathered": lambda turn: torch_matmul(
            words[turn % QUERIES], stores.f32.index_select(0, places[turn % ROW_SETS])
        ),
        "numpy_gathered": lambda turn: numpy_matmul(
            words[turn % QUERIES].numpy(), stores.f32.numpy()[rows[turn % ROW_SETS]]
        ),
    }
    score = maxsim_cpu()
    if score is not None:
        runs["maxsim_cpu_gathered"] = lambda turn: score(
            words[turn % QUERIES].numpy(), stores.f32.numpy()[rows[turn % ROW_SETS]]
        )
    return runs


def quantise(tokens: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Convert tokens (..., dim) to int8 and their scales (...)."""
    scales = tokens.abs().amax(dim=-1) / 127
    return (tokens / scales.unsqueeze(-1)).round().to(torch.int8), scales


def write_stores(folder: Path, items: int) -> Stores:
    """Write random photos in every form, and map them."""
    lengths = np.full(items, REGIONS)
    tokens = unit_vectors(items * REGIONS, seed=1)
    shape = (items, REGIONS, TOKEN_DIM)
    write_npy(folder / "f32.npy", np.float32, shape, [tokens.reshape(shape)])
    bits = torch.from_numpy(tokens).bfloat16().view(torch.int16).numpy()
    write_npy(folder / "bf16.npy", np.int16, shape, [bits.reshape(shape)])
    ours: dict[TokenDtype, TokenStore] = {}
    for dtype in TOKEN_DTYPES:
        ours[dtype] = write_store(folder / dtype, tokens, lengths, dtype)
    return Stores(
        ours,
        torch.from_numpy(map_npy(folder / "f32.npy", np.float32, shape)),
        torch.from_numpy(map_npy(folder / "bf16.npy", np.int16, shape)).view(torch.bfloat16),
    )


def print_table(report: dict[str, Any]) -> None:
    """Print one line per engine, in Markdown."""
    print(f"{report['items']} photos, path {report['path']}, p50 of {report['repetitions']}, ms")
    columns = report["candidates"]
    flat = [entry | entry["more"] for entry in columns.values()]
    rows = [
        [
            name.removesuffix("_ms"),
            *("" if entry[name] is None else f"{entry[name]:.3f}" for entry in flat),
        ]
        for name in flat[0]
        if name != "more"
    ]
    print_rows(["", *(f"{count} candidates" for count in columns)], rows)


if __name__ == "__main__":
    main()

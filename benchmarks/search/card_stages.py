"""Both stages on a GPU beside the processor, and exhaustive search: steps of `benchmarks.card`.

Of exhaustive search of random tokens, by number of regions and form of the tokens:

scan                   p10_ms and p50_ms of 1 and 16 queries of 16 words, until the best rows are
                       in the processor's memory
alone                  a bare product of the same tokens in half precision with the words, and the
                       largest of it by photo

Of ten million photos of 17 regions, 4 bits each, made from the drawn ones by noise:

built_s                seconds to train and fill the lists on the GPU
p10_ms, p50_ms         by number of lists searched: both stages of one query, 100 candidates
recall                 share of the exact nearest 100 that is found

Of the product's two stages, for each engine:

start_s, card_bytes    seconds to open the index, with its copy on the GPU and a search that
                       verifies it; memory of the GPU that it takes
retrieve, rerank, search    p10_ms and p50_ms of one query at a time: the first stage, 100
                       candidates; the second; both with the look-up of the hits
batches                the same queries by `search_all`
alone                  of 64 queries, the first stage by itself, and a bare product of as many
                       tokens with words as the second stage has
exhaustive             all photos as candidates, one query and 16 at a time
ann_recall             share of the exact nearest 100 that is found
same_hits              share of the processor's top 10 that is found

processor     FAISS and the kernel on one thread, as the service answers a query
card          both stages on the GPU, the first by FAISS if it has support for GPUs
card, torch   both stages on the GPU by torch

Without a GPU, the tiny form measures the same on the processor.
"""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray

from aladin_index.ann.ann_index import AnnIndex, build_ann
from aladin_index.ann.exact_search import best_of
from aladin_index.ann.first_stage_build import ann_options
from aladin_index.devices.card import BLOCK_BYTES, Card
from aladin_index.devices.card_scan import CardScan
from aladin_index.devices.card_tokens import CardTokens
from aladin_index.devices.card_vectors import CardVectors
from aladin_index.devices.search_device import SearchDevice
from aladin_index.generations.reader import open_index
from aladin_index.search.collection import ExhaustiveQuery, FirstStageQuery
from aladin_index.search.options import MAX_ITEMS
from aladin_index.search.scan import ScanQuery
from aladin_index.search.searcher import TwoStageSearcher
from aladin_index.tokens.codec import TokenCodec
from aladin_index.tokens.store import TokenStore
from aladin_network.scoring.fusion import DirectionFusion
from aladin_network.types import TOKEN_DTYPES, NullProgress
from benchmarks.lib.measuring import use_one_thread
from benchmarks.lib.small_collection import unit_rows
from benchmarks.lib.steps import Report, Setup
from benchmarks.lib.synthetic import SyntheticPhotos, TextQueries
from benchmarks.lib.synthetic_sources import EMBEDDING_DIM, TOKEN_DIM, find_source
from benchmarks.search.gpu import (
    BATCHES,
    QUERIES,
    QUICK_QUERIES,
    Drawn,
    batch_figures,
    card_bytes,
    card_of,
    device_of,
    times_ms,
    torch_search,
)
from benchmarks.search.scale import build
from benchmarks.search.searches import CANDIDATES, ServedFirstStage, TextSearches, measure_recall

_RECALL_QUERIES, _COMPARED_QUERIES = 50, 50
# Exhaustive searches: regions of a photo, queries at a time, words of a query.
_REGIONS, _SCANNED, _WORDS = (17, 49), (1, 16), 16
# Lists searched of ten million photos.
_WIDTHS = (16, 64, 256)
# Queries at a time whose stages are measured alone.
_ALONE = 64


def exhaustive(setup: Setup, report: Report) -> None:
    """Measure exhaustive search of random tokens, beside a bare product with them."""
    device = device_of(setup)
    report("device", device)
    random = np.random.default_rng(0)
    seconds = setup.measuring_s / (2 * len(_REGIONS) * len(TOKEN_DTYPES))
    few = unit_rows(random.standard_normal((256 * 39, TOKEN_DIM)))
    vectors = unit_rows(random.standard_normal((10_000, EMBEDDING_DIM)))
    vectors = np.tile(vectors, (-(-setup.items // len(vectors)), 1))[: setup.items]
    ann = AnnIndex(build_ann("Flat", vectors[:1], NullProgress()), None)
    words = [unit_rows(random.standard_normal((_WORDS, TOKEN_DIM))) for _ in range(max(_SCANNED))]
    queries = [
        ScanQuery(
            ExhaustiveQuery(
                FirstStageQuery(vectors[place], wanted=10, candidates=0), DirectionFusion(), 1.0
            ),
            vectors[place],
            of_query,
            "text",
            0,
        )
        for place, of_query in enumerate(words)
    ]
    for regions in _REGIONS:
        for form in TOKEN_DTYPES:
            card = card_of(device, with_faiss=False)
            codec = TokenCodec.train(form, few)
            places = np.arange(setup.items * regions) % len(few)
            store = TokenStore.from_arrays(
                codec, codec.pack(few).take(places), [regions] * setup.items
            )
            before = card_bytes()
            scan = CardScan(card, CardVectors(card, ann, vectors), CardTokens(card, store))
            figures: dict[str, Any] = {"card_bytes": card_bytes() - before}
            for size in _SCANNED:
                times = times_ms(partial(_scan, scan, queries[:size]), seconds)
                figures[f"scan of {size}"] = batch_figures(times, size)
                if form == "float16":
                    alone = _bare_products(card, store, words[:size])
                    figures[f"alone, {size}"] = batch_figures(times_ms(alone, seconds), size)
            report(f"{regions} regions, {form}", figures)
            del scan


def _scan(scan: CardScan, queries: list[ScanQuery], _: int) -> object:
    return scan.best(queries)


def _bare_products(
    card: Card, store: TokenStore, words: list[NDArray[np.float32]]
) -> Callable[[int], object]:
    """Return a product of all tokens with words, and the best region of each photo and word."""
    tokens = card.copy(store.stored.values, card.dtype)
    asked = card.tensor(np.concatenate(words).T, card.dtype)
    regions = int(store.offsets[1])
    step = BLOCK_BYTES // (asked.shape[1] * asked.element_size() * regions) * regions

    def multiply(_: int) -> object:
        parts = [
            (tokens[start : start + step] @ asked).unflatten(0, (-1, regions)).amax(1)
            for start in range(0, len(tokens), step)
        ]
        return [part.sum().item() for part in parts]

    return multiply


def two_stages(setup: Setup, report: Report) -> None:
    """Build an index, and search it with every engine of this machine."""
    device = device_of(setup)
    root = setup.folder / f"index-{setup.items}"
    report("device", device)
    report("build", build(root, setup.items, "int8", "auto", None))
    count = QUICK_QUERIES if setup.is_quick else QUERIES
    # Captions that are not in the index.
    queries = SyntheticPhotos(find_source().divided()[1]).queries(count, setup.items, seed=1)
    use_one_thread()
    engines: dict[str, Callable[[], Card | None]] = {
        "processor": lambda: None,
        "card": lambda: card_of(device),
        "card, torch": lambda: card_of(device, with_faiss=False),
    }
    expected: list[set[str]] = []
    for name, make in engines.items():
        card = make()
        engine = SearchDevice(card, is_required=True)
        try:
            figures, hits = _measure_engine(root, engine, queries, setup.measuring_s / 6)
            if card is not None:
                figures["alone"] = _stages_alone(card, root, queries, setup.measuring_s / 12)
        finally:
            engine.close()
        expected = expected or hits
        shares = [
            len(ours & first) / len(first) for ours, first in zip(hits, expected, strict=True)
        ]
        report(name, figures | {"same_hits": float(np.mean(shares))})
    shutil.rmtree(root)


def _measure_engine(
    root: Path, engine: SearchDevice, queries: TextQueries, seconds: float
) -> tuple[dict[str, Any], list[set[str]]]:
    """Return the figures of an engine, and the ids that it finds."""
    before, started = card_bytes(), time.perf_counter()
    with open_index(root, device=engine) as index:
        figures: dict[str, Any] = {"start_s": time.perf_counter() - started}
        figures["card_bytes"] = card_bytes() - before
        searcher = TwoStageSearcher(index)
        asking = TextSearches(searcher, queries)
        taken: list[tuple[float, float]] = []

        def ask(turn: int) -> None:
            took_ms = asking.search(turn, CANDIDATES).took_ms
            taken.append((took_ms.retrieve, took_ms.rerank))

        whole = times_ms(ask, seconds)
        timed = np.array(taken[-len(whole) :])
        for name, times in {
            "retrieve": timed[:, 0],
            "rerank": timed[:, 1],
            "search": whole,
        }.items():
            figures[name] = batch_figures(times, 1)

        def measure_batches(
            candidates: int | Literal["exhaustive"], sizes: Sequence[int]
        ) -> dict[int, Any]:
            batches: dict[int, Any] = {}
            for size in sizes:

                def ask_all(turn: int, size: int = size) -> object:
                    places = range(turn * size, (turn + 1) * size)
                    return searcher.search_all([asking.asked(at, candidates) for at in places])

                batches[size] = batch_figures(times_ms(ask_all, seconds / len(sizes)), size)
            return batches

        figures["batches"] = measure_batches(CANDIDATES, BATCHES[1:])
        if index.collection("images").count <= MAX_ITEMS or engine.device != "cpu":
            figures["exhaustive"] = measure_batches("exhaustive", _SCANNED)
        figures["ann_recall"] = measure_recall(
            ServedFirstStage(index.collection("images").base, queries), _RECALL_QUERIES
        )
        hits = [
            {hit.id for hit in asking.search(turn, CANDIDATES).hits}
            for turn in range(_COMPARED_QUERIES)
        ]
    return figures, hits


def _stages_alone(
    card: Card, root: Path, queries: TextQueries, seconds: float
) -> dict[str, dict[str, float]]:
    """Measure a batch of the first stage by itself, and a bare product of as many tokens."""
    size = _ALONE
    with open_index(root) as index:
        images = index.images
        assert images is not None
        vectors = CardVectors(card, images.ann, images.embeddings)
        asked = np.ascontiguousarray(queries.embeddings[:size])
        found = times_ms(lambda _: vectors.search(asked, CANDIDATES), seconds)
        shape = (size, CANDIDATES * int(images.tokens.offsets[1]), TOKEN_DIM)
        tokens = torch.zeros(shape, dtype=card.dtype, device=card.device)
        words = torch.zeros((size, TOKEN_DIM, _WORDS), dtype=card.dtype, device=card.device)
        product = times_ms(lambda _: (tokens @ words).amax().item(), seconds)
    return {"retrieve": batch_figures(found, size), "product": batch_figures(product, size)}


def ten_million(setup: Setup, report: Report) -> None:
    """Measure both stages with so many photos that the first searches inverted lists."""
    device, drawn = device_of(setup), Drawn.read(setup.folder)
    report("device", device)
    random, card = np.random.default_rng(0), card_of(device)
    vectors = np.empty((setup.items, EMBEDDING_DIM), dtype=np.float32)
    for start in range(0, setup.items, len(drawn.embeddings)):
        part = vectors[start : start + len(drawn.embeddings)]
        noise = random.standard_normal(part.shape, dtype=np.float32)
        part[:] = unit_rows(drawn.embeddings[: len(part)] + 0.25 / EMBEDDING_DIM**0.5 * noise)
    factory = ann_options(setup.items, EMBEDDING_DIM, on_card=True)[0].factory
    started = time.perf_counter()
    index = build_ann(factory, vectors, NullProgress(), device.partition(":")[0])
    report("factory", factory)
    report("built_s", time.perf_counter() - started)
    codec = TokenCodec.train("4bit", unit_rows(random.standard_normal((256 * 39, TOKEN_DIM))))
    few = codec.pack(unit_rows(random.standard_normal((10_000, TOKEN_DIM))))
    places = np.arange(setup.items * _REGIONS[0]) % few.count
    store = TokenStore.from_arrays(codec, few.take(places), [_REGIONS[0]] * setup.items)
    started, before = time.perf_counter(), card_bytes()
    tokens = CardTokens(card, store)
    queries = np.ascontiguousarray(drawn.queries)
    words = [unit_rows(random.standard_normal((_WORDS, TOKEN_DIM)))]
    exact = torch_search(vectors, device, torch.float16 if device != "cpu" else torch.float32)
    nearest = exact(queries[:_RECALL_QUERIES])
    del exact
    for width in _WIDTHS:
        engine = CardVectors(card, AnnIndex(index, width), vectors)
        figures: dict[str, Any] = {"card_bytes": card_bytes() - before}
        figures["opened_s"] = time.perf_counter() - started

        def search(turn: int, engine: CardVectors = engine) -> object:
            query = queries[turn % len(queries)][None]
            [found] = engine.search(query, CANDIDATES)
            rows, _ = best_of(vectors, query[0], found, CANDIDATES)
            return tokens.align_all(words, "text", [rows])

        figures |= batch_figures(times_ms(search, setup.measuring_s / len(_WIDTHS)), 1)
        found = engine.search(queries[:_RECALL_QUERIES], CANDIDATES)
        shares = [
            len(np.intersect1d(rows, each)) / len(each)
            for rows, each in zip(found, nearest, strict=True)
        ]
        report(f"{width} lists", figures | {"recall": float(np.mean(shares))})
        started, before = time.perf_counter(), card_bytes()
        del engine
    card.close()

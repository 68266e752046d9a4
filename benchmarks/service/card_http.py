"""The service on a card under load, beside its pipeline alone: steps of `benchmarks.card`.

pipeline    queries a second of the pipeline, called in a loop in one process, by batch size
service     queries a second over HTTP of 64 clients in a closed loop, their latencies, and which
            share was refused, by number of workers
ratio       the best of the service over the best of the pipeline

The text encoder is of the size of MiniLM or of BERT base, with random weights.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from aladin_network.types import DeviceName
from aladin_service.search.job import TextQuery
from aladin_service.settings import ServiceSettings
from benchmarks.lib.served_index import QUICK_SIZE, SIZES, make_served_index, read_queries
from benchmarks.lib.service_process import ServiceProcess
from benchmarks.lib.steps import Report, Setup
from benchmarks.search.gpu import device_of
from benchmarks.service.load_client import ClosedLoop, run_load, search_request
from benchmarks.service.pipeline import PipelineRun, measure_pipeline

_CLIENTS, _MOST_BATCH, _TEXTS = 64, 64, 4000
# Few, as drawing them and encoding their captions takes most of the time to make the index.
_PICTURES = 40
_WORKERS, _BATCHES = (1, 2), (16, 64)


def minilm(setup: Setup, report: Report) -> None:
    """Measure with a text encoder of MiniLM's size."""
    _measure("minilm", setup, report)


def bert_base(setup: Setup, report: Report) -> None:
    """Measure with a text encoder of BERT base's size, ALADIN's own."""
    _measure("bert-base", setup, report)


def _measure(encoder: str, setup: Setup, report: Report) -> None:
    device: DeviceName = "cpu" if device_of(setup) == "cpu" else "cuda"
    full = replace(SIZES[encoder], photos=setup.items, pictures=_PICTURES)
    size = QUICK_SIZE if setup.is_quick else full
    index = make_served_index(setup.folder, size)
    texts = read_queries(index).new_texts(_TEXTS)
    requests = [search_request("images", {"text": text}) for text in texts]
    workers = _WORKERS[:1] if setup.is_quick else _WORKERS
    seconds = setup.measuring_s / (len(workers) + len(_BATCHES))
    run = PipelineRun(
        index=index,
        settings=ServiceSettings(query_cache_bytes=0),
        queries=[TextQuery(text) for text in texts],
        processes=1,
        threads=1,
        batches=_BATCHES,
        seconds=seconds,
        device=device,
    )
    report("pipeline", pipeline := measure_pipeline(run))
    settings = {"ALADIN_QUERY_CACHE_BYTES": "0", "ALADIN_MAX_BATCH": str(_MOST_BATCH)}
    service: dict[int, dict[str, float]] = {}
    for count in workers:
        asked = ["--device", device, "--warm", "--workers", str(count)]
        with ServiceProcess(index, asked, settings) as running:
            run_load(ClosedLoop(running.url, requests, seconds / 5, clients=_CLIENTS))
            result = run_load(ClosedLoop(running.url, requests, seconds, clients=_CLIENTS))
        p50, p99 = map(float, np.percentile(result.latency_ms[result.ok], (50, 99)))
        refused = float((~result.ok).mean())
        rates = {"queries_per_s": result.ok_per_s, "p50_ms": p50, "p99_ms": p99, "refused": refused}
        report("service", service := service | {count: rates})
    best = max(each["queries_per_s"] for each in service.values())
    report("ratio", best / max(pipeline.values()))

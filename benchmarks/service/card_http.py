"""The service on a card under load, beside its pipeline alone: steps of `benchmarks.card`.

service     queries a second over HTTP of 64 clients in a closed loop, with their latencies
pipeline    queries a second of the same pipeline, called in a loop in one process, by batch size
ratio       the best of the service over the best of the pipeline

By the first stage on the card, and by number of workers. The text encoder is of the size of MiniLM
or of BERT base, with random weights.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from aladin_network.types import DeviceName, FirstStageName
from aladin_service.search.job import TextQuery
from aladin_service.settings import ServiceSettings
from benchmarks.lib.served_index import QUICK_SIZE, SIZES, make_served_index, read_queries
from benchmarks.lib.service_process import ServiceProcess
from benchmarks.lib.steps import Report, Setup
from benchmarks.search.gpu import device_of
from benchmarks.service.load_client import ClosedLoop, run_load, search_request
from benchmarks.service.pipeline import PipelineRun, measure_pipeline

_CLIENTS, _MOST_BATCH, _TEXTS = 64, 64, 4000
_WORKERS, _BATCHES = (1, 2), (16, 64)


def minilm(setup: Setup, report: Report) -> None:
    """Measure with a text encoder of MiniLM's size."""
    _measure("minilm", setup, report)


def bert_base(setup: Setup, report: Report) -> None:
    """Measure with a text encoder of BERT base's size, ALADIN's own."""
    _measure("bert-base", setup, report)


def _measure(encoder: str, setup: Setup, report: Report) -> None:
    device: DeviceName = "cpu" if device_of(setup) == "cpu" else "cuda"
    size = QUICK_SIZE if setup.is_quick else replace(SIZES[encoder], photos=setup.items)
    index = make_served_index(setup.folder, size)
    texts = read_queries(index).new_texts(_TEXTS)
    requests = [search_request("images", {"text": text}) for text in texts]
    stages: list[FirstStageName] = ["faiss"] if device == "cpu" else ["torch", "faiss"]
    workers = _WORKERS[:1] if setup.is_quick else _WORKERS
    seconds = setup.measuring_s / (len(stages) * (len(workers) + len(_BATCHES)))
    for stage in stages:
        run = PipelineRun(
            index=index,
            settings=ServiceSettings(query_cache_bytes=0),
            queries=[TextQuery(text) for text in texts],
            processes=1,
            threads=1,
            batches=_BATCHES,
            seconds=seconds,
            device=device,
            first_stage=stage,
        )
        pipeline = measure_pipeline(run)
        asked = ["--device", device, "--first-stage", stage, "--warm"]
        settings = {"ALADIN_QUERY_CACHE_BYTES": "0", "ALADIN_MAX_BATCH": str(_MOST_BATCH)}
        service: dict[int, dict[str, Any]] = {}
        for count in workers:
            with ServiceProcess(index, [*asked, "--workers", str(count)], settings) as running:
                run_load(ClosedLoop(running.url, requests, seconds / 5, clients=_CLIENTS))
                result = run_load(ClosedLoop(running.url, requests, seconds, clients=_CLIENTS))
            p50, p99 = np.percentile(result.latency_ms[result.ok], (50, 99))
            service[count] = {
                "queries_per_s": result.ok_per_s,
                "p50_ms": float(p50),
                "p99_ms": float(p99),
                "refused": float((~result.ok).mean()),
            }
        ratio = max(each["queries_per_s"] for each in service.values()) / max(pipeline.values())
        report(stage, {"service": service, "pipeline": pipeline, "ratio": ratio})

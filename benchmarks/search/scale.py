"""Builds an index of N synthetic photos, opens it in a fresh process, and searches it.

    python -m benchmarks.search.scale --items 100000 [--json] [--tokens int8] [--ann auto]
        [--regions 49] [--keep DIR]

The photos are made from real encodings (see `benchmarks.lib.synthetic`), 49 regions each, or
`--regions` of them. The index
is built by one process and searched by another, so that the peak resident memory of each is
measured. No page of the index is in memory when that process opens it, unless another process has
it open. Searches are for photos by encoded texts, one at a time and on one thread unless noted, and
by alignment alone. The captions asked for are not those in the index. With --keep, what an
earlier run has built is not made again, and its costs are those of then.

rss_bytes                      the larger of build_rss_bytes and search_rss_bytes, including the
                               pages of mapped files
search_anonymous_bytes         what the process that searches has allocated itself, of no file
open_ms                        time to open the index, with its network
p50_ms, p95_ms                 time to retrieve and re-rank 100 candidates and to look up the hits,
                               with all pages in memory
first_pass_p95_ms              the same for the first search of each text, which reads its pages
ann_recall                     share of the first stage's exact nearest 100 among the candidates
candidates                     smallest number that keeps a fidelity of 0.99 on half of the queries
fidelity                       share of the top 10 by exhaustive alignment among the hits with that
                               number of candidates, on the other queries
stages_p50_ms                  time of both stages in whole searches with that number
retrieve_over_faiss            time of the first stage, divided by that of FAISS with the same
                               parameters, including its exact comparison (IndexRefineFlat), whose
                               copy of the vectors is made up to 4 GiB
retrieve_over_faiss_unrefined  the same without FAISS's exact comparison
exhaustive_over_two_stage      time of exhaustive alignment by the same kernel, divided by that of
                               retrieving and re-ranking `candidates`
two_stage_over_matching        time to retrieve and re-rank 100, divided by that to retrieve them

A million photos with int8 tokens need 9 GB of disk below the folder of temporary files, ten million
with 17 regions and 4-bit tokens 30 GB.
"""

from __future__ import annotations

import os
import tempfile
from bisect import bisect_left
from contextlib import nullcontext
from pathlib import Path
from typing import Any

from aladin_index.settings import BuildSettings
from aladin_network.files import read_json, write_json
from aladin_network.types import TOKEN_DTYPES, TokenDtype
from benchmarks.lib.output import figures_parser, print_json
from benchmarks.lib.processes import forget_pages, in_fresh_process, peak_rss_bytes
from benchmarks.lib.small_collection import folder_bytes
from benchmarks.lib.synthetic import SyntheticPhotos, write_synthetic_index
from benchmarks.lib.synthetic_sources import REGIONS, find_source
from benchmarks.search.searches import Effort, measure_search

QUICK_ITEMS = 2000
# What the build cost, beside the index.
_COSTS = "build.json"
_QUICK = Effort(
    searches=50, recall_queries=20, fidelity_queries=20, exhaustive_runs=2, throughput_s=0.2
)


def main() -> None:
    """Run the measurements, and print a table or JSON."""
    parser = figures_parser(__doc__, "2,000 photos, a few seconds")
    parser.add_argument("--items", type=int, default=10_000, help="number of photos")
    parser.add_argument("--tokens", choices=TOKEN_DTYPES, default="int8")
    parser.add_argument("--ann", default="auto", help="auto, exact or a FAISS factory string")
    parser.add_argument("--regions", type=int, default=REGIONS, help="regions kept of a photo's 49")
    parser.add_argument("--source", type=Path, metavar="INDEX", help="index of real photos")
    parser.add_argument("--keep", type=Path, metavar="DIR", help="folder to keep the index in")
    options = parser.parse_args()
    items = QUICK_ITEMS if options.quick else options.items
    if not 1 <= options.regions <= REGIONS:
        parser.error(f"--regions: expected 1 to {REGIONS}, got {options.regions}")
    effort = _QUICK if options.quick else effort_for(items)
    given = (options.source, options.keep, options.regions)
    figures = measure(items, options.tokens, options.ann, effort, *given)
    if options.json:
        print_json(figures)
    else:
        print_table(figures)


def effort_for(items: int) -> Effort:
    """Return how often to measure; steps that read every photo are repeated less for more."""
    size = bisect_left([200_000, 1_000_000], items)
    return Effort(
        searches=500,
        recall_queries=(200, 100, 100)[size],
        fidelity_queries=(500, 100, 50)[size],
        exhaustive_runs=(20, 5, 2)[size],
        throughput_s=3.0,
    )


def measure(
    items: int,
    tokens: TokenDtype,
    ann: str,
    effort: Effort,
    source: Path | None = None,
    keep: Path | None = None,
    regions: int = REGIONS,
) -> dict[str, Any]:
    """Build and search, each in a separate process.

    Args:
        items: Number of photos.
        tokens: Form in which the tokens are stored.
        ann: Kind of the first stage.
        effort: Number of repetitions of the measurements.
        source: Index of real photos, or None for the choice of `find_source`.
        keep: Folder for the index, or None for a temporary one.
        regions: Regions of a photo.
    """
    place = tempfile.TemporaryDirectory() if keep is None else nullcontext(keep)
    with place as folder:
        root = Path(folder) / "index"
        figures: dict[str, Any] = {"items": items, "tokens": tokens, "regions": regions}
        figures["threads"] = processor_count()
        costs = root.with_name(_COSTS)
        if not (root / "CURRENT").exists():
            write_json(costs, in_fresh_process(build, root, items, tokens, ann, source, regions))
        figures |= read_json(costs)
        figures |= in_fresh_process(search, root, items, effort, source)
    figures["rss_bytes"] = max(
        value for name, value in figures.items() if name.endswith("_rss_bytes")
    )
    return figures


def build(
    root: Path,
    items: int,
    tokens: TokenDtype,
    ann: str,
    source: Path | None,
    regions: int = REGIONS,
) -> dict[str, Any]:
    """Build the index; return its costs."""
    made_from = find_source(source).keeping(regions)
    settings = BuildSettings(ann=ann, token_dtype=tokens)
    photos = SyntheticPhotos(made_from.divided()[0])
    seconds = write_synthetic_index(root, photos, items, settings)
    return {
        "source": made_from.name,
        "build_s": {stage: round(value, 2) for stage, value in seconds.items()},
        "build_rss_bytes": peak_rss_bytes(),
        "disk_bytes": folder_bytes(root),
    }


def search(root: Path, items: int, effort: Effort, source: Path | None) -> dict[str, Any]:
    """Open and search the index with texts that it was not calibrated with."""
    photos = SyntheticPhotos(find_source(source).divided()[1])
    asked = max(effort.searches, effort.recall_queries, effort.fidelity_queries)
    # The index's own texts are the first ones of the same random sequence.
    queries = photos.queries(asked, items, seed=1)
    del photos
    forget_pages(root)
    return measure_search(root, queries, effort)


def processor_count() -> int:
    """Return the number of processors that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def print_table(figures: dict[str, Any]) -> None:
    """Print one line per figure, bytes in MiB."""
    for name, value in figures.items():
        if name.endswith("_bytes"):
            print(f"{name:<32}{value / 2**20:,.0f} MiB")
        elif isinstance(value, dict):
            parts = (
                f"{key}: {each if each is None else format(each, '.4g')}"
                for key, each in value.items()
            )
            print(f"{name:<32}" + ", ".join(parts))
        elif isinstance(value, float):
            print(f"{name:<32}{value:.4g}")
        else:
            print(f"{name:<32}{value}")


if __name__ == "__main__":
    main()

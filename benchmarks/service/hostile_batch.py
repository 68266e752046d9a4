"""One batch of the costliest searches, and the searches of others beside it.

python -m benchmarks.service.hostile_batch [--index INDEX] [--json]

batch_s            time to the answer of a batch of 256 searches of 8 terms each, all items as
                   candidates, 100 hits and their evidence
batch_answer_mb    size of its answer
batch_peak_mb      memory of all processes of the service at the peak, beyond what they had
others             plain searches that another client sends meanwhile, one every 50 ms
others_429_share   share of them that is rejected
others_median_ms   median time of those that are answered
others_max_ms      longest time of those
"""

from __future__ import annotations

import math
import sys
import threading
import time
from pathlib import Path
from typing import NamedTuple

import numpy as np

from benchmarks.lib.output import figures_parser, print_figures
from benchmarks.lib.processes import status_bytes
from benchmarks.lib.served_index import find_served_index
from benchmarks.lib.service_process import ServiceProcess

# Others are to be served beside a batch, on a slow machine too.
MOST_REJECTED, MOST_ANSWER_MB = 0.2, 34

_QUERIES, _TERMS, _HITS = 256, 8, 100
_PAUSE_S, _PATIENCE_S = 0.05, 300.0


class BatchFigures(NamedTuple):
    """The figures to print; see the docstring of the module."""

    batch_s: float
    batch_answer_mb: float
    batch_peak_mb: int
    others: int
    others_429_share: float
    others_median_ms: float
    others_max_ms: float

    @property
    def faults(self) -> list[str]:
        """Return the violations of the bounds."""
        found = {
            f"{self.others_429_share:.0%} of the others were rejected": self.others_429_share
            > MOST_REJECTED,
            f"an answer of {self.batch_answer_mb} MB": self.batch_answer_mb > MOST_ANSWER_MB,
            "no other search was sent": self.others == 0,
        }
        return [text for text, is_there in found.items() if is_there]


def attack_by_batch(index: Path) -> BatchFigures:
    """Serve an index, and search it beside a batch.

    Args:
        index: The index; it is not changed.
    """
    terms = [{"text": f"a red dog {number}"} for number in range(_TERMS)]
    search = {
        "target": "images",
        "all": terms,
        "candidates": "exhaustive",
        "k": _HITS,
        "explain": True,
    }
    taken: list[tuple[int, float]] = []
    with ServiceProcess(index) as service:
        for _ in range(3):
            service.ask("POST", "/v1/search/images", {"text": "a dog"})
        over = threading.Event()
        received: list[bytes] = []
        pids = service.pids()
        before = [status_bytes(pid, "VmRSS") or 0 for pid in pids]

        def send_batch() -> None:
            try:
                fields = {"queries": [search] * _QUERIES}
                path = "/v1/search/batch"
                received.append(service.ask("POST", path, fields, timeout_s=_PATIENCE_S)[1])
            finally:
                over.set()

        started = time.perf_counter()
        batch = threading.Thread(target=send_batch)
        batch.start()
        while not over.wait(_PAUSE_S):
            asked = time.perf_counter()
            status, _ = service.ask("POST", "/v1/search/images", {"text": f"a cat {len(taken)}"})
            taken.append((status, 1000 * (time.perf_counter() - asked)))
        batch.join()
        batch_s = time.perf_counter() - started
        peak = sum(status_bytes(pid, "VmHWM") or 0 for pid in pids) - sum(before)
    answered = [ms for status, ms in taken if status == 200] or [math.inf]
    return BatchFigures(
        batch_s=round(batch_s, 2),
        batch_answer_mb=round(len(received[0]) / 1e6, 1) if received else math.inf,
        batch_peak_mb=peak // 10**6,
        others=len(taken),
        others_429_share=round(sum(status == 429 for status, _ in taken) / max(1, len(taken)), 3),
        others_median_ms=round(float(np.median(answered)), 1),
        others_max_ms=round(max(answered), 1),
    )


def main() -> None:
    """Run the attack and print the outcome; exit with 1 if anything exceeds its bound."""
    parser = figures_parser(__doc__, "the same")
    parser.add_argument("--index", type=Path, help="index to serve; default: a synthetic one")
    arguments = parser.parse_args()
    figures = attack_by_batch(find_served_index(arguments.index, quick=True))
    print_figures(figures._asdict(), as_json=arguments.json)
    if figures.faults:
        sys.exit("; ".join(figures.faults))


if __name__ == "__main__":
    main()

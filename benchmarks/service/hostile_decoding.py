"""Small photos that are costly to decode or encode, sent and requested many at once.

    python -m benchmarks.service.hostile_decoding [--index INDEX] [--json]

A separate service is attacked; it is killed if it takes more than 3 GB of memory.

    decode_peak_mb         largest memory of the service's process
    decode_health_s        longest response time of /healthz while photos are decoded
    decode_statuses        number of responses of each status to the large photos; 0: no response
    withdrawn_thumbnail_s  time to get a thumbnail after 12 clients have requested a photo that is
                           slow to encode, and disconnected
    withdrawn_add_s        time to add a text after that; both are inf if the service was killed, or
                           did not respond within two minutes
"""

from __future__ import annotations

import http.client
import math
import shutil
import struct
import sys
import tempfile
import threading
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple

import httpx
import numpy as np

from benchmarks.lib.output import figures_parser, print_figures
from benchmarks.lib.processes import status_bytes
from benchmarks.lib.served_index import find_served_index
from benchmarks.lib.service_process import ServiceProcess

# Memory that the service may use, and the value at which it is stopped to protect the machine.
MOST_PEAK_MB, _KILLED_MB = 1500, 3000
# Maximum response time of the event loop, and of requests that do not cause the load, on a slow
# machine.
MOST_HEALTH_S, MOST_WITHDRAWN_S = 1.0, 30.0

_UPLOADS, _HANG_UPS, _HANG_UP_S = 24, 12, 0.3
# One photo that is refused because of its pixels and format, and one that is decoded.
_SIZES = ((8000, 8000), (6800, 6800))
_NOISE_SIDE, _PATIENCE_S, _LOOK_S = 8000, 120.0, 0.05
# Settings of a machine with four processors or more.
_SETTINGS = {"ALADIN_DECODE_THREADS": "4", "ALADIN_QUERY_THREADS": "4"}


class DecodingFigures(NamedTuple):
    """The figures to print; see the docstring of the module."""

    decode_peak_mb: int
    decode_health_s: float
    decode_statuses: dict[str, int]
    withdrawn_thumbnail_s: float
    withdrawn_add_s: float

    @property
    def faults(self) -> list[str]:
        """Return the violations of the bounds."""
        worst_s = max(self.withdrawn_thumbnail_s, self.withdrawn_add_s)
        unanswered = set(self.decode_statuses) - {"200", "413", "429"}
        found = {
            f"{self.decode_peak_mb} MB at the peak": self.decode_peak_mb > MOST_PEAK_MB,
            f"/healthz took {self.decode_health_s} s": self.decode_health_s > MOST_HEALTH_S,
            f"held up for {worst_s} s by clients that are gone": worst_s > MOST_WITHDRAWN_S,
            f"large photos were answered {sorted(unanswered)}": bool(unanswered),
        }
        return [text for text, is_there in found.items() if is_there]


def webp_of(width: int, height: int) -> bytes:
    """Return a single-coloured WebP, up to 16,384 pixels wide and high, in 34 bytes."""
    size = (width - 1) | (height - 1) << 14
    pixels = b"\x2f" + size.to_bytes(4, "little") + bytes.fromhex("071011fd0f4444ff03")
    chunk = b"VP8L" + struct.pack("<I", len(pixels)) + pixels
    return b"RIFF" + struct.pack("<I", 4 + len(chunk)) + b"WEBP" + chunk


def noise_bmp(side: int) -> bytes:
    """Return a black and white BMP of noise, which is eight times as large as a coloured PNG."""
    row_bytes = -(-side // 32) * 4
    pixels = np.random.default_rng(0).bytes(row_bytes * side)
    palette, offset = b"\0\0\0\0\xff\xff\xff\0", 62
    info = struct.pack("<IiiHHIIiiII", 40, side, side, 1, 1, 0, len(pixels), 0, 0, 2, 0)
    head = b"BM" + struct.pack("<IHHI", offset + len(pixels), 0, 0, offset)
    return head + info + palette + pixels


class _Watch:
    """Monitors a service's memory and health on two threads while the context is active."""

    def __init__(self, service: ServiceProcess) -> None:
        self.peak_mb, self.health_s = 0, 0.0
        self._service = service
        self._ended = threading.Event()
        self._threads = [threading.Thread(target=look) for look in (self._memory, self._health)]

    def __enter__(self) -> _Watch:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        for thread in self._threads:
            thread.join()

    def _memory(self) -> None:
        while not self._ended.wait(_LOOK_S):
            peak = status_bytes(self._service.process.pid, "VmHWM")
            if peak is None:  # it has been killed
                return
            self.peak_mb = peak // 10**6
            if self.peak_mb > _KILLED_MB:
                self._service.process.kill()

    def _health(self) -> None:
        while not self._ended.wait(_LOOK_S):
            started = time.perf_counter()
            try:
                self._service.ask("GET", "/healthz")
            except (OSError, http.client.HTTPException):
                return
            finally:
                self.health_s = max(self.health_s, time.perf_counter() - started)


def attack_decoding(index: Path) -> DecodingFigures:
    """Serve a copy of an index and attack it.

    Args:
        index: The index; its items are not needed, but its model is one of photos.
    """
    with tempfile.TemporaryDirectory() as folder:
        copy = Path(folder) / "index"
        shutil.copytree(index, copy, symlinks=True)
        with ServiceProcess(copy, settings=_SETTINGS) as service:
            service.ask("POST", "/v1/items/texts", {"id": "flood", "text": "a dog"})
            with _Watch(service) as watch:
                statuses = sum((_flood(service, size) for size in _SIZES), Counter[int]())
            try:
                waits = _hang_up(service)
            except httpx.TransportError:  # killed, or no answer in time
                waits = math.inf, math.inf
    return DecodingFigures(
        decode_peak_mb=watch.peak_mb,
        decode_health_s=round(watch.health_s, 2),
        decode_statuses={str(status): count for status, count in sorted(statuses.items())},
        withdrawn_thumbnail_s=round(waits[0], 2),
        withdrawn_add_s=round(waits[1], 2),
    )


def _flood(service: ServiceProcess, size: tuple[int, int]) -> Counter[int]:
    """Send a large photo many times at once; return the count of each status."""
    files = {"image": ("a", webp_of(*size))}
    with httpx.Client(base_url=service.url, timeout=_PATIENCE_S, trust_env=False) as client:
        fields = {"id": "flood"}

        def send(number: int) -> int:
            try:
                if number % 2:
                    return client.post("/v1/explain.png", files=files, data=fields).status_code
                return client.post("/v1/search/texts", files=files).status_code
            except httpx.TransportError:
                return 0

        with ThreadPoolExecutor(_UPLOADS) as clients:
            return Counter(clients.map(send, range(_UPLOADS)))


def _hang_up(service: ServiceProcess) -> tuple[float, float]:
    """Request a large photo and disconnect; return the times of a thumbnail and an addition."""
    with httpx.Client(base_url=service.url, timeout=_PATIENCE_S, trust_env=False) as client:
        for name, side in (("noise", _NOISE_SIDE), ("small", 64)):
            files = {"image": ("a", noise_bmp(side))}
            client.post("/v1/items/images", files=files, data={"id": name}).raise_for_status()

        def leave(_: int) -> None:
            try:
                client.get("/v1/images/noise", timeout=_HANG_UP_S)
            except httpx.TransportError:
                return

        with ThreadPoolExecutor(_HANG_UPS) as clients:
            list(clients.map(leave, range(_HANG_UPS)))
        started = time.perf_counter()
        client.get("/v1/images/small", params={"size": 32}).raise_for_status()
        shown = time.perf_counter()
        client.post("/v1/items/texts", json={"id": "after", "text": "a cat"}).raise_for_status()
        return shown - started, time.perf_counter() - shown


def main() -> None:
    """Attack a service and print the outcome; exit with 1 if anything exceeds its bound."""
    parser = figures_parser(__doc__, "the same")
    parser.add_argument(
        "--index", type=Path, help="index to serve a copy of; default: a synthetic one"
    )
    arguments = parser.parse_args()
    figures = attack_decoding(find_served_index(arguments.index, quick=True))
    print_figures(figures._asdict(), as_json=arguments.json)
    if figures.faults:
        sys.exit("; ".join(figures.faults))


if __name__ == "__main__":
    main()

"""Start of a service to its first answers, and its memory, with the page cache warm.

    python -m benchmarks.service.start --index INDEX [--workers 1] [--runs 3] [--json]

Times are counted from the start of the process: until /readyz answers 200, until the answer to a
first text, and until that to a first photo after it; processor time is that of all processes of
the service until then. Memory is that of all its processes, after these two answers and after
`--answers` further ones, a tenth of them to photos, all of them new. Then the imports are timed by
package.

Runs without the extra `train`.
"""

from __future__ import annotations

import http.client
import io
import re
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from benchmarks.lib.output import figures_parser, print_json, print_rows
from benchmarks.lib.processes import Memory, processor_time_s
from benchmarks.lib.service_process import ServiceProcess

_BOUNDARY = "photo"
_PHOTO_PX = (500, 375)
_PACKAGES = 12
_IMPORT = re.compile(r"import time:\s+(\d+) \|\s+\d+ \|\s+(\w+)")


def _photo(number: int) -> bytes:
    """Return a JPEG of a photo's size that differs from those of other numbers."""
    width, height = _PHOTO_PX
    random = np.random.default_rng(number)
    coarse = Image.fromarray(random.integers(0, 256, (12, 16, 3), dtype=np.uint8))
    file = io.BytesIO()
    coarse.resize((width, height), Image.Resampling.BICUBIC).save(file, "JPEG")
    return file.getvalue()


def _ask_by_text(service: ServiceProcess, number: int) -> None:
    status, body = service.ask("POST", "/v1/search/images", {"text": f"a dog with {number} balls"})
    if status != 200:
        raise SystemExit(f"expected an answer to a text, got {status}: {body[:200]!r}")


def _ask_by_photo(service: ServiceProcess, number: int) -> None:
    head = (
        f"--{_BOUNDARY}\r\ncontent-type: image/jpeg\r\n"
        'content-disposition: form-data; name="image"; filename="photo.jpg"\r\n\r\n'
    )
    body = head.encode() + _photo(number) + f"\r\n--{_BOUNDARY}--\r\n".encode()
    kind = {"content-type": f"multipart/form-data; boundary={_BOUNDARY}"}
    connection = http.client.HTTPConnection("127.0.0.1", service.port, timeout=60)
    try:
        connection.request("POST", "/v1/search/images", body, kind)
        answer = connection.getresponse()
        content = answer.read()
    finally:
        connection.close()
    if answer.status != 200:
        raise SystemExit(f"expected an answer to a photo, got {answer.status}: {content[:200]!r}")


def _megabytes(memory: Memory) -> dict[str, int]:
    return {f"{name}_mb": round(value / 1e6) for name, value in memory._asdict().items()}


def measure_start(index: Path, arguments: Sequence[str], answers: int) -> dict[str, Any]:
    """Start a service, ask it, and stop it.

    Args:
        index: Index folder.
        arguments: Further arguments of ``aladin serve``.
        answers: Number of answers between the two measurements of memory.

    Returns:
        Seconds, milliseconds of later answers, and memory in megabytes, by name.
    """
    started = time.perf_counter()
    with ServiceProcess(index, arguments) as service:
        ready_s = time.perf_counter() - started
        _ask_by_text(service, 0)
        text_s = time.perf_counter() - started
        _ask_by_photo(service, 0)
        photo_s = time.perf_counter() - started
        processor_s = processor_time_s(service.pids())
        first = _megabytes(service.memory())
        later: dict[str, list[float]] = {"text": [], "photo": []}
        for number in range(1, answers + 1):
            kind, ask = ("photo", _ask_by_photo) if number % 10 == 0 else ("text", _ask_by_text)
            asked = time.perf_counter()
            ask(service, number)
            later[kind].append(1000 * (time.perf_counter() - asked))
        return {
            "ready_s": round(ready_s, 2),
            "first_text_s": round(text_s, 2),
            "first_photo_s": round(photo_s, 2),
            "processor_s": round(processor_s, 2),
            "first_text_ms": round(1000 * (text_s - ready_s)),
            "first_photo_ms": round(1000 * (photo_s - text_s)),
            **{f"later_{kind}_ms": round(float(np.median(ms)), 1) for kind, ms in later.items()},
            "memory_first": first,
            "memory_later": _megabytes(service.memory()),
        }


def imports_ms() -> dict[str, float]:
    """Return the milliseconds that a service's imports take by package, and in all.

    Reading the clock at every import takes a fifth more time.
    """
    program = "import aladin_service.cli, aladin_service.http.server, onnxruntime"
    command = [sys.executable, "-X", "importtime", "-c", program]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    spent: Counter[str] = Counter()
    for microseconds, package in _IMPORT.findall(done.stderr):
        spent[package] += int(microseconds)
    named = {package: round(us / 1000, 1) for package, us in spent.most_common(_PACKAGES)}
    return {"all": round(spent.total() / 1000, 1), **named}


def _spread(runs: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Return for every figure the least and the median of the runs; of memory, the most."""
    spread: dict[str, Any] = {}
    for name, value in runs[0].items():
        if isinstance(value, dict):
            spread[name] = {part: max(run[name][part] for run in runs) for part in value}
        else:
            values = [run[name] for run in runs]
            spread[name] = [min(values), round(float(np.median(values)), 2)]
    return spread


def main() -> None:
    """Measure the starts and print them."""
    parser = figures_parser(__doc__)
    parser.add_argument("--index", type=Path, required=True, help="index to serve")
    parser.add_argument("--workers", type=int, default=1, help="worker processes; 1: threads")
    parser.add_argument("--runs", type=int, default=3, help="starts that are measured")
    parser.add_argument("--answers", type=int, default=1000, help="further answers, at least 10")
    options = parser.parse_args()
    arguments = ["--workers", str(options.workers)]
    with ServiceProcess(options.index, arguments):
        pass  # reads all files once, and compiles what was not
    runs = [measure_start(options.index, arguments, options.answers) for _ in range(options.runs)]
    figures = _spread(runs)
    imports = imports_ms()
    if options.json:
        print_json({"runs": runs, "least_and_median": figures, "imports_ms": imports})
        return
    rows = [(name, *value) for name, value in figures.items() if isinstance(value, list)]
    print_rows(("", "least", "median"), rows)
    memory = {name: value for name, value in figures.items() if isinstance(value, dict)}
    print_rows(("MB", *next(iter(memory.values()))), [(n, *v.values()) for n, v in memory.items()])
    print_rows(("imports", "ms"), imports.items())


if __name__ == "__main__":
    main()

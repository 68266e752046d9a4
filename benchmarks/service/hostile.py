"""Attacks a service: it must answer, keep its memory bounded, and reveal no other file.

    python -m benchmarks.service.hostile [--cases 10000] [--images 5000] [--workers 1] [--quick]
    [--json]

Starts `aladin serve` on a copy of an index and sends requests generated from its API description,
broken pictures and decompression bombs, and paths that lead out of the index, in ten rounds of all
three; a line on stderr reports each round. Then hundreds of connections with half a request are
held while /healthz is requested. Finally, JSON bodies that are disproportionately costly are sent
to another service on the same copy.

    api_cases         requests to all routes, by schemathesis; half of them valid
    images            broken pictures, each uploaded as a query and as a new item
    paths             attempts to read a file outside the index
    held_connections  connections held with half a head or half a body
    errors_5xx        responses with a status of 500 or more, 503 included, and failed connections
    hangs             requests without a response for 30 s
    undocumented      responses that the API description does not allow
    leaks             responses with the content of a file outside the index
    rss_growth_bytes  memory of all processes of the service after the last round, minus that after
                      the second, when its buffers, caches and pools are filled; each is measured
                      after twelve idle seconds, because the service frees memory every ten
    rss_mb_by_round   memory at the end of each round, without the idle time
    json              number of JSON bodies, their peak of memory, the longest stall of the event
                      loop, and how much longer an addition takes beside items with many fields;
                      the limits are in `benchmarks.service.hostile_json`
    statuses          number of responses of each status by group; 0: could not be sent
    decoding          effects of costly photos on a separate service; see
                      `benchmarks.service.hostile_decoding`
    batch             effects of a batch of the costliest searches on those of others; see
                      `benchmarks.service.hostile_batch`

`benchmarks.index.hostile_index` damages the files of an index.
"""

from __future__ import annotations

import shutil
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple, cast

import requests
import schemathesis
from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis.errors import Unsatisfiable
from schemathesis import GenerationMode, checks
from schemathesis.core.failures import Failure, FailureGroup

from benchmarks.lib.output import figures_parser, print_figures
from benchmarks.lib.served_index import find_served_index
from benchmarks.lib.service_process import ServiceProcess
from benchmarks.service.hostile_batch import attack_by_batch
from benchmarks.service.hostile_decoding import attack_decoding
from benchmarks.service.hostile_json import BODY_BYTES, JSON_FAULTS, QUICK_BODY_BYTES, attack_json
from benchmarks.service.hostile_requests import (
    PATIENCE_S,
    Answers,
    send_held_connections,
    send_images,
    send_paths,
)

# Valid requests test the code behind the checks, invalid ones the checks.
_MODES = (GenerationMode.POSITIVE, GenerationMode.NEGATIVE)
# Health checks of hypothesis on the speed and the size of generated cases.
_ALL_CHECKS = cast(list[HealthCheck], list(HealthCheck))

_DESCRIBED = [
    checks.status_code_conformance,
    checks.content_type_conformance,
    checks.response_schema_conformance,
]

_SHOWN_FAULTS = 20


def send_api_cases(url: str, count: int, answers: Answers, *, seed_: int = 0) -> int:
    """Send requests to every route.

    Args:
        url: URL of the service.
        count: Approximate number of requests, spread evenly over the routes.
        answers: Counter of the responses. A response that the description does not allow is a
            fault.
        seed_: Seed; different seeds give different requests.

    Returns:
        The number of requests that were sent.
    """
    schema = schemathesis.openapi.from_url(f"{url}/openapi.json")
    found: list[Any] = list(schema.get_all_operations())
    parts = [(operation.ok(), mode) for operation in found for mode in _MODES]
    sent = 0
    with requests.Session() as session:
        # A route with few parameters runs out of cases early; the others get the rest of its share.
        while sent < count and parts:
            round_ = -(-(count - sent) // len(parts))
            for operation, mode in tuple(parts):
                strategy = operation.as_strategy(generation_mode=mode)
                try:
                    done = _send(strategy, round_, session, url, answers, seed_ + sent)
                except Unsatisfiable:  # the operation takes no input that could be invalid
                    done = 0
                sent += done
                if done < round_:
                    parts.remove((operation, mode))
    return sent


def _send(
    strategy: Any,
    count: int,
    session: requests.Session,
    url: str,
    answers: Answers,
    seed_: int,
) -> int:
    sent = 0

    @seed(seed_)
    @settings(
        max_examples=count,
        database=None,
        deadline=None,
        phases=[Phase.generate],
        suppress_health_check=_ALL_CHECKS,
    )
    @given(strategy)
    def send(case: Any) -> None:
        nonlocal sent
        sent += 1
        asked = f"{case.method} {case.formatted_path} {case.query} {str(case.body)[:200]}"
        try:
            answer = case.call(base_url=url, session=session, timeout=PATIENCE_S)
        except requests.Timeout:
            answers.fault("hang", asked, f"no response in {PATIENCE_S:g} s")
            return
        except (requests.RequestException, ValueError) as error:
            # Requests that HTTP cannot represent, such as a header of two lines, were not sent.
            answers.answered("api", 0, asked, repr(error).encode())
            return
        answers.answered("api", answer.status_code, asked, answer.content)
        try:
            case.validate_response(answer, checks=_DESCRIBED)
        except (Failure, FailureGroup) as failure:
            answers.fault("undocumented", asked, _first_lines(failure))

    run: Callable[[], None] = send
    run()
    return sent


def _first_lines(failure: BaseException) -> str:
    if isinstance(failure, FailureGroup):
        failure = failure.exceptions[0]
    return " ".join(str(failure).split())[:300]


_CASES, _IMAGES = 10_000, 5_000
_QUICK_CASES, _QUICK_IMAGES = 300, 150
_ROUNDS, _WARM_UP_ROUNDS = 10, 2
# How long the memory of an idle service is observed to find its minimum.
_REST_S, _LOOKS = 12.0, 24


class Figures(NamedTuple):
    """The figures to print."""

    api_cases: int
    images: int
    paths: int
    held_connections: int
    errors_5xx: int
    hangs: int
    undocumented: int
    leaks: int
    rss_growth_bytes: int
    rss_mb_by_round: list[int]
    json: dict[str, float]
    json_faults: int
    seconds: float
    statuses: dict[str, dict[str, int]]
    faults: list[str]
    decoding: dict[str, Any]
    batch: dict[str, Any]


def attack(index: Path, cases: int, images: int, workers: int, body_bytes: int) -> Figures:
    """Serve a copy of an index and attack it.

    Args:
        index: Folder of the index.
        cases: Number of requests generated from the API description.
        images: Number of broken pictures.
        workers: Number of workers of the service.
        body_bytes: Length of the hostile JSON bodies.
    """
    started = time.perf_counter()
    with tempfile.TemporaryDirectory() as folder:
        copy, canary = Path(folder) / "index", Path(folder) / "canary"
        shutil.copytree(index, copy, symlinks=True)
        canary.write_text("a canary outside of the index\n" * 3)
        answers = Answers()
        sent: list[tuple[int, int, int]] = []
        held: list[int] = []
        at_rest: list[int] = []
        with ServiceProcess(copy, ["--workers", str(workers)]) as service:
            for number in range(_ROUNDS):
                seed = 1_000_000 * number
                sent.append(
                    (
                        send_api_cases(service.url, -(-cases // _ROUNDS), answers, seed_=seed),
                        send_images(service.url, -(-images // _ROUNDS), answers, seed=seed),
                        send_paths(service.port, canary, copy, answers),
                    )
                )
                held.append(service.memory().rss)
                if number + 1 in (_WARM_UP_ROUNDS, _ROUNDS):
                    at_rest.append(_memory_at_rest(service))
                _tell(number, answers, held[-1], time.perf_counter() - started)
            held_connections = send_held_connections(service.port, answers)
            if not service.is_ready():
                answers.fault("server_error", "/readyz", "not ready at the end")
        json_figures = attack_json(copy, workers, body_bytes, answers)
    decoding = attack_decoding(index)
    for each in decoding.faults:
        answers.fault("decoding", "costly photos", each)
    batch = attack_by_batch(index)
    for each in batch.faults:
        answers.fault("batch", "a costly batch", each)
    api_cases, sent_images, paths = (sum(each) for each in zip(*sent, strict=True))
    return Figures(
        api_cases=api_cases,
        images=sent_images,
        paths=paths,
        held_connections=held_connections,
        errors_5xx=answers.count("server_error"),
        hangs=answers.count("hang"),
        undocumented=answers.count("undocumented"),
        leaks=answers.count("leak"),
        rss_growth_bytes=at_rest[-1] - at_rest[0],
        rss_mb_by_round=[round(rss / 1e6) for rss in held],
        json=json_figures._asdict(),
        json_faults=sum(map(answers.count, JSON_FAULTS)),
        seconds=round(time.perf_counter() - started, 1),
        statuses={
            group: {str(status): counts[status] for status in sorted(counts)}
            for group, counts in sorted(answers.statuses.items())
        },
        faults=[
            f"{fault.kind}: {fault.asked} -> {fault.answer}"
            for fault in answers.faults[:_SHOWN_FAULTS]
        ],
        decoding=decoding._asdict(),
        batch=batch._asdict(),
    )


def _memory_at_rest(service: ServiceProcess) -> int:
    """Return the minimum memory of the idle service, in bytes."""
    looks: list[int] = []
    for _ in range(_LOOKS):
        looks.append(service.memory().rss)
        time.sleep(_REST_S / _LOOKS)
    return min(looks)


def _tell(number: int, answers: Answers, rss: int, seconds: float) -> None:
    """Print the progress of the attack to stderr."""
    asked = sum(counts.total() for counts in answers.statuses.values())
    print(
        f"round {number + 1} of {_ROUNDS}: {asked} answers, {len(answers.faults)} faults, "
        f"{rss / 1e6:.0f} MB, {seconds:.0f} s",
        file=sys.stderr,
    )


def main() -> None:
    """Attack a service and print the outcome; exit with 1 if there is any fault."""
    parser = figures_parser(__doc__, "a few hundred of each kind")
    parser.add_argument(
        "--index", type=Path, help="index to serve a copy of; default: a synthetic one"
    )
    parser.add_argument("--cases", type=int, default=_CASES, help="generated requests")
    parser.add_argument("--images", type=int, default=_IMAGES, help="broken pictures")
    parser.add_argument("--workers", type=int, default=1, help="workers of the service")
    arguments = parser.parse_args()
    cases = _QUICK_CASES if arguments.quick else arguments.cases
    images = _QUICK_IMAGES if arguments.quick else arguments.images
    index = find_served_index(arguments.index, quick=True)
    body_bytes = QUICK_BODY_BYTES if arguments.quick else BODY_BYTES
    figures = attack(index, cases, images, arguments.workers, body_bytes)
    print_figures(figures._asdict(), as_json=arguments.json)
    if not arguments.json:
        for fault in figures.faults:
            print(f"  {fault}")
    costly = any(fault.startswith(("decoding: ", "batch: ")) for fault in figures.faults)
    if figures.errors_5xx or figures.hangs or figures.leaks or figures.json_faults or costly:
        sys.exit(1)


if __name__ == "__main__":
    main()

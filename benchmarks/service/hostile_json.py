"""Sends bodies that are disproportionately costly; the service must keep responding.

Each body is sent as large as a request may be, and in sizes that are within the limits of JSON, so
that it is parsed and validated. Nearly all are JSON, to the routes and to the tools of agents. The
memory of the service is limited, and /healthz is requested throughout.
"""

from __future__ import annotations

import json
import resource
import statistics
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple

from benchmarks.lib.processes import processor_time_s, status_bytes
from benchmarks.lib.service_process import ServiceProcess
from benchmarks.service.hostile_requests import Answers, exchange
from benchmarks.service.loop_stall import LoopStall

BODY_BYTES = 24 * 2**20
QUICK_BODY_BYTES = 4 * 2**20
_SMALLER_BYTES = (1_000_000, 500_000)
# Bounds on the cost of an attack; exceeding one is a fault.
MAX_PEAK_BYTES = 700_000_000
MAX_STALL_S = 1.0
MAX_ANSWER_BYTES = 64 * 2**10
MAX_SLOWDOWN = 3.0
JSON_FAULTS = ("memory", "stall", "slowdown", "large_answer")
# Additional memory that the service may use at most; this machine also runs other programs.
_LIMIT_BYTES = 3 * 10**9
_PATIENCE_S = 300.0
_CLIENTS = 4
_FORM = "multipart/form-data; boundary=x"
_CALL = (
    b'{"jsonrpc":"2.0","id":1,"method":"tools/call","params":'
    b'{"name":"search","arguments":{"query":"a"'
)
_ACCEPT = "application/json, text/event-stream"
# Data within the metadata limits, which later additions and searches then meet.
_WIDE_ITEMS, _WIDE_FIELDS = 20, 1000
_TIMED_ADDS = 7


class JsonFigures(NamedTuple):
    """Cost of the bodies.

    Attributes:
        sent: Number of bodies.
        peak_bytes: Maximum resident memory of all processes of the service, beyond what they had
            before.
        stall_s: The longest time for which the event loop was blocked, see `LoopStall`.
        stall_wall_s: The same as observed by a client, including time in which other programs had
            the processor.
        add_slowdown: Processor time to add one text when there are items with 1,000 metadata fields
            each, divided by the time before.
    """

    sent: int
    peak_bytes: int
    stall_s: float
    stall_wall_s: float
    add_slowdown: float


class JsonAttack(NamedTuple):
    """A body and where it is sent.

    Attributes:
        name: Name of the attack.
        path: Path that it is sent to.
        body: Function that makes the body, given its approximate number of bytes.
        content_type: Content type of the body.
        whole: Whether it is sent as large as a request may be even in the quick form: its cost is
            that of its length.
    """

    name: str
    path: str
    body: Callable[[int], bytes]
    content_type: str = "application/json"
    whole: bool = False


def attack_json(index: Path, workers: int, body_bytes: int, answers: Answers) -> JsonFigures:
    """Serve an index and send it all bodies, one at a time and then four at a time.

    The service has answered an agent before: it loads what that takes at the first request.

    Args:
        index: Folder of a copy of the index, to which items are added.
        workers: Number of workers of the service.
        body_bytes: Length of the largest bodies.
        answers: Counter of the responses. Too much memory, a loop that stalls for too long, and a
            long response are faults.
    """
    sizes = (body_bytes, *_SMALLER_BYTES)
    attacks = [(attack, size) for attack in json_attacks() for size in sizes]
    attacks += [(attack, BODY_BYTES) for attack in json_attacks() if attack.whole]
    with ServiceProcess(index, ["--workers", str(workers)]) as service:
        before_s = _time_to_add(service, "before")
        service.ask("POST", "/mcp", {})
        pids = service.pids()
        for pid in pids:
            _limit_memory(pid)
        rest = sum(status_bytes(pid, "VmRSS") or 0 for pid in pids)
        with LoopStall(service.port, pids) as stall:
            for attack, size in attacks:
                send_attack(service.port, attack, size, answers)
            with ThreadPoolExecutor(_CLIENTS) as clients:
                sent = [
                    clients.submit(send_attack, service.port, attack, size, answers)
                    for attack, size in attacks
                ]
            for each in sent:
                each.result()
        peak_bytes = sum(status_bytes(pid, "VmHWM") or 0 for pid in pids) - rest
        _add_wide_items(service, answers)
        slowdown = _time_to_add(service, "after") / before_s
        if not service.is_ready():
            answers.fault("server_error", "/readyz", "not ready after JSON bodies")
    for kind, found, most in (
        ("memory", peak_bytes, MAX_PEAK_BYTES),
        ("stall", stall.worst_s, MAX_STALL_S),
        ("slowdown", slowdown, MAX_SLOWDOWN),
    ):
        if found > most:
            answers.fault(kind, "JSON bodies", f"{found:g}, expected at most {most:g}")
    return JsonFigures(
        sent=2 * len(attacks),
        peak_bytes=peak_bytes,
        stall_s=round(stall.worst_s, 3),
        stall_wall_s=round(stall.worst_wall_s, 3),
        add_slowdown=round(slowdown, 2),
    )


def json_attacks() -> Iterator[JsonAttack]:
    """Yield the attacks."""
    search, texts = "/v1/search/images", "/v1/items/texts"
    batch, explain = "/v1/search/batch", "/v1/explain.png"
    for name, value in (("lists", b"[]"), ("texts", b'""'), ("numbers", b"0"), ("objects", b"{}")):
        yield JsonAttack(f"items, {name}", texts, _listed(b'{"items":[', value))
        yield JsonAttack(f"queries, {name}", batch, _listed(b'{"queries":[', value))
        filter_ = _listed(b'{"text":"a","filter":{"a":[', value, b"]}}")
        yield JsonAttack(f"values of a filter, {name}", search, filter_)
    yield JsonAttack(
        "tests of a filter", search, _listed(b'{"text":"a","filter":{"or":[', b'{"a":0}', b"]}}")
    )
    for path in (search, texts, explain, batch):
        yield JsonAttack(f"unknown fields of {path}", path, _named(b"{", b"}"))
    yield JsonAttack("fields of a filter", search, _named(b'{"text":"a","filter":{', b"}}"))
    item = b'{"id":"wide","text":"a dog","metadata":{'
    yield JsonAttack("fields of metadata", texts, _named(item, b"}}"))
    yield JsonAttack("values of metadata", texts, _listed(item + b'"a":[', b"[]", b"]}}"))
    yield JsonAttack("unknown fields of an item", texts, _named(b'{"items":[{', b"}]}"))
    yield JsonAttack("unknown fields of a query", batch, _named(b'{"queries":[{', b"}]}"))
    for field in ("id", "text", "image", "regions"):
        yield JsonAttack(f"long {field}", search, _filled(f'{{"{field}":"'.encode(), b"A", b'"}'))
    yield JsonAttack("long id of an item", texts, _filled(b'{"text":"a","id":"', b"i", b'"}'))
    yield JsonAttack("long uri", texts, _filled(b'{"id":"a","text":"a","uri":"', b"u", b'"}'))
    yield JsonAttack("long name", search, _filled(b'{"text":"a","', b"n", b'":0}'))
    yield JsonAttack("escapes", search, _filled(b'{"text":"', b"\\u00e9", b'"}'))
    yield JsonAttack("wide characters", search, _filled(b'{"image":"', "😀".encode(), b'"}'))
    base64 = _filled(b'{"image":"', b"AA ", b'"}')
    yield JsonAttack("spaces in base64", search, base64, whole=True)
    form = b'--x\r\nContent-Disposition: form-data; name="image"; filename="a"\r\n\r\na\r\n--x'
    for name, part in (("delimiters", b"A\r\n--x"), ("spaces", b" ")):
        filled = _filled(form, part, b"--\r\n")
        yield JsonAttack(f"{name} of a form", search, filled, _FORM, whole=True)
    yield JsonAttack("many pictures", search, _filled(b"{", b'"image":"",', b'"k":1}'))
    yield JsonAttack("depth", search, _filled(b'{"filter":', b"[", b""))
    yield JsonAttack("digits", search, _filled(b'{"text":"a","k":', b"9", b"}"))
    yield JsonAttack("fraction", search, _filled(b'{"text":"a","fusion":0.', b"9", b"}"))
    yield JsonAttack("long numbers", batch, _listed(b'{"queries":[', b"9" * 4000))
    for field, value in (("all", b"{}"), ("all", b'{"text":"a"}'), ("like", b"0"), ("not", b'""')):
        parts = _listed(b'{"%b":[' % field.encode(), value)
        yield JsonAttack(f"parts in {field}, {value.decode()}", search, parts)
    for field, value in (("and", b'""'), ("not", b'"a"'), ("like", b"0"), ("filter", b"[]")):
        parts = _listed(_CALL + b',"%b":[' % field.encode(), value, b"]}}}")
        yield JsonAttack(f"{field} of a tool, {value.decode()}", "/mcp", parts)
    yield JsonAttack("arguments of a tool", "/mcp", _named(_CALL + b",", b"}}}"))
    yield JsonAttack("fields of a message", "/mcp", _named(b"{", b"}"))
    yield JsonAttack("JSON in an argument", "/mcp", _filled(_CALL + b',"and":"[', b"1,", b'1]"}}}'))
    yield JsonAttack("white space", search, _filled(b'{"text":"a"', b" ", b"}"))


def _listed(start: bytes, value: bytes, end: bytes = b"]}") -> Callable[[int], bytes]:
    end = value + end
    return _filled(start, value + b",", end)


def _named(start: bytes, end: bytes) -> Callable[[int], bytes]:
    def make(size: int) -> bytes:
        # Seven digits are enough to make each name different.
        count = (size - len(start) - len(end)) // len(b'"0000000":0,')
        return start + b",".join(b'"%07d":0' % each for each in range(count)) + end

    return make


def _filled(start: bytes, part: bytes, end: bytes) -> Callable[[int], bytes]:
    return lambda size: start + part * ((size - len(start) - len(end)) // len(part)) + end


def send_attack(port: int, attack: JsonAttack, body_bytes: int, answers: Answers) -> None:
    """Send a body and count the response; a long response is a fault.

    Args:
        port: Port of the service on 127.0.0.1.
        attack: Attack to send.
        body_bytes: Approximate length of the body.
        answers: Counter of the responses.
    """
    body = attack.body(body_bytes)
    asked = f"{attack.name}: POST {attack.path}, {len(body)} bytes"
    received = exchange(
        port,
        "json",
        asked,
        lambda connection: connection.request(
            "POST", attack.path, body, {"Content-Type": attack.content_type, "Accept": _ACCEPT}
        ),
        answers,
        timeout_s=_PATIENCE_S,
    )
    if received is not None and len(received[1]) > MAX_ANSWER_BYTES:
        answers.fault("large_answer", asked, f"{received[0]}, {len(received[1])} bytes")


def _add_wide_items(service: ServiceProcess, answers: Answers) -> None:
    """Add items with the maximum number of fields, all of them new."""
    for number in range(_WIDE_ITEMS):
        metadata = {f"field {number} {each}": each for each in range(_WIDE_FIELDS)}
        fields = {"id": f"hostile/wide/{number}", "text": "a dog", "metadata": metadata}
        status, body = service.ask("POST", "/v1/items/texts?on_duplicate=replace", fields)
        answers.answered("json", status, json.dumps(fields)[:100], body)


def _time_to_add(service: ServiceProcess, name: str) -> float:
    """Return the median processor time of the service to add a text with one field, in seconds.

    The time that a client waits depends on the other programs of the machine, which may be busier
    at the second measurement.
    """
    pids, times_s = service.pids(), list[float]()
    for number in range(_TIMED_ADDS):
        item_id = f"hostile/{name}/{number}"
        fields = {"id": item_id, "text": "a dog", "metadata": {"number": number}}
        started_s = processor_time_s(pids)
        service.ask("POST", "/v1/items/texts?on_duplicate=replace", fields)
        times_s.append(processor_time_s(pids) - started_s)
    return statistics.median(times_s)


def _limit_memory(pid: int) -> None:
    """Limit the additional address space of a process, and reset its peak memory."""
    most = (status_bytes(pid, "VmSize") or 0) + _LIMIT_BYTES
    resource.prlimit(pid, resource.RLIMIT_AS, (most, most))
    Path(f"/proc/{pid}/clear_refs").write_text("5")

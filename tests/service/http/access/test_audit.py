"""The line that a write leaves in the log."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from aladin_service.http.access.audit import WriteRecord, log_write

pytestmark = pytest.mark.anyio

TEXT = {"id": "new\nline", "text": "words that are nobody's business"}


@pytest.fixture
def lines(caplog: pytest.LogCaptureFixture) -> Iterator[list[logging.LogRecord]]:
    """The lines so far; grows."""
    caplog.set_level(logging.INFO, "service.audit")
    records: list[logging.LogRecord] = []
    handler = logging.Handler()
    handler.emit = records.append
    logger = logging.getLogger("service.audit")
    logger.addHandler(handler)
    try:
        yield records
    finally:
        logger.removeHandler(handler)


def fields(record: logging.LogRecord) -> dict[str, Any]:
    """What a line tells programs."""
    return vars(record)["fields"]


async def test_who_added_what(
    door: Any, keys_file: Path, keys: dict[str, str], lines: list[logging.LogRecord]
) -> None:
    headers = {"x-api-key": keys["write"], "x-request-id": "r-1"}
    async with door(keys_file=keys_file, client=("10.0.0.9", 1)) as client:
        await client.post("/v1/items/texts", json=TEXT, headers=headers)
    (line,) = lines
    assert line.levelno == logging.INFO
    assert fields(line) == {
        "outcome": "done",
        "key": "write",
        "client": "10.0.0.9",
        "method": "POST",
        "path": "/v1/items/texts",
        "status": 201,
        "error": None,
        "target": "texts",
        "ids": ["new\nline"],
        "added": ["new\nline"],
        "replaced": [],
        "kept": [],
        "generation": 3,
    }


async def test_who_deleted_what(door: Any, lines: list[logging.LogRecord]) -> None:
    async with door() as client:
        await client.delete("/v1/items/texts/a/b")
        await client.delete("/v1/items/texts/nobody")
    done, refused = map(fields, lines)
    assert done["key"] is None
    assert (done["outcome"], done["deleted"], done["generation"]) == ("done", ["a/b"], 4)
    assert (refused["outcome"], refused["status"], refused["error"]) == (
        "refused",
        404,
        "unknown_id",
    )
    assert (refused["ids"], refused["generation"]) == (["nobody"], None)
    assert lines[1].levelno == logging.WARNING


async def test_what_never_reached_the_index_is_told_too(
    door: Any, keys_file: Path, keys: dict[str, str], lines: list[logging.LogRecord]
) -> None:
    async with door(keys_file=keys_file) as client:
        await client.post("/v1/items/texts", json=TEXT)
        await client.post("/v1/items/texts", json=TEXT, headers={"x-api-key": keys["read"]})
        await client.post("/v1/items/texts", json={}, headers={"x-api-key": keys["write"]})
    told = [(each["status"], each["error"], each["key"]) for each in map(fields, lines)]
    assert told == [
        (401, "unauthorized", None),
        (403, "missing_scope", "read"),
        (422, "invalid_field", "write"),
    ]
    assert {each["outcome"] for each in map(fields, lines)} == {"refused"}


async def test_a_failure_of_ours_is_one(
    door: Any, workers: Any, lines: list[logging.LogRecord]
) -> None:
    workers.failure = RuntimeError("the disk is gone")
    async with door() as client:
        assert (await client.post("/v1/items/texts", json=TEXT)).status_code == 500
    (line,) = lines
    assert fields(line)["outcome"] == "failed"
    assert fields(line)["ids"] == ["new\nline"]


async def test_neither_keys_nor_contents_nor_lines_of_the_clients_own(
    door: Any, keys_file: Path, keys: dict[str, str], lines: list[logging.LogRecord]
) -> None:
    async with door(keys_file=keys_file) as client:
        for secret in (*keys.values(), "wrong-key"):
            await client.post("/v1/items/texts", json=TEXT, headers={"x-api-key": secret})
            await client.delete("/v1/items/texts/a%0Db", headers={"x-api-key": secret})
    assert len(lines) == 8
    for line in lines:
        told = line.getMessage() + repr(fields(line))
        assert line.getMessage().isprintable()
        assert "business" not in told
        for secret in (*keys.values(), "wrong-key"):
            assert secret not in told


async def test_reads_leave_no_line(door: Any, lines: list[logging.LogRecord]) -> None:
    async with door() as client:
        await client.post("/v1/search/images", json={"text": "a dog"})
        await client.get("/v1/items/texts/nobody")
        await client.put("/v1/items/texts/nobody")
    assert lines == []


async def test_a_long_path_is_cut(
    door: Any, keys_file: Path, keys: dict[str, str], lines: list[logging.LogRecord]
) -> None:
    assert keys
    async with door(keys_file=keys_file) as client:
        await client.delete("/v1/items/texts/" + "x" * 30_000)
        await client.delete("/v1/items/texts/" + "y" * 1000)
    assert [len(fields(line)["path"]) for line in lines] == [2000, 1016]
    assert max(len(line.getMessage()) for line in lines) < 2500


@pytest.mark.parametrize(
    ("status", "outcome"),
    [
        (None, "failed"),
        (201, "done"),
        (399, "done"),
        (400, "refused"),
        (499, "refused"),
        (500, "failed"),
        (507, "failed"),
    ],
)
def test_what_became_of_a_write(
    status: int | None, outcome: str, lines: list[logging.LogRecord]
) -> None:
    record = WriteRecord(target="texts", ids=["a"])
    log_write(record, key_name=None, client="::1", method="POST", path="/v1", status=status)
    (line,) = lines
    assert fields(line)["outcome"] == outcome
    assert fields(line)["error"] is None  # there is no request
    assert line.levelno == (logging.INFO if outcome == "done" else logging.WARNING)
    before, _, told = line.getMessage().partition(": ")
    assert before == f"write {outcome}"
    expected = {
        "outcome": outcome,
        "client": "::1",
        "method": "POST",
        "path": "/v1",
        "status": status,
        "target": "texts",
        "ids": ["a"],
    }
    assert json.loads(told) == {name: value for name, value in expected.items() if value}

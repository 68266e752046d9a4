"""The line that a write leaves in the log."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from aladin_service.http.access.audit import WriteRecord, log_write
from tests.service.http.conftest import FakeWorkers, Open

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
    yield records
    logger.removeHandler(handler)


def fields(record: logging.LogRecord, *names: str) -> Any:
    """What a line tells programs, or some of it."""
    told = vars(record)["fields"]
    return [told[name] for name in names] if names else told


async def test_a_line_says_who_added_what(
    door: Open, keys_file: Path, keys: dict[str, str], lines: list[logging.LogRecord]
) -> None:
    headers = {"x-api-key": keys["write"], "x-request-id": "r-1"}
    async with door(keys_file=keys_file, client=("10.0.0.9", 1)) as client:
        await client.post("/v1/items/texts", json=TEXT, headers=headers)
    (line,) = lines
    assert line.levelno == logging.INFO
    assert fields(line) == {
        **{"outcome": "done", "key": "write", "client": "10.0.0.9", "method": "POST"},
        **{"path": "/v1/items/texts", "status": 201, "error": None, "target": "texts"},
        **{"ids": ["new\nline"], "added": ["new\nline"], "replaced": [], "kept": []},
        "generation": 3,
    }


async def test_lines_say_what_was_deleted_and_what_failed_and_reads_leave_none(
    door: Open, workers: FakeWorkers, lines: list[logging.LogRecord]
) -> None:
    async with door() as client:
        await client.post("/v1/search/images", json={"text": "a dog"})
        await client.get("/v1/items/texts/nobody")
        await client.put("/v1/items/texts/nobody")
        assert lines == []
        await client.delete("/v1/items/texts/a/b")
        await client.delete("/v1/items/texts/nobody")
        workers.failure = RuntimeError("the disk is gone")
        assert (await client.post("/v1/items/texts", json=TEXT)).status_code == 500
    done, refused, failed = lines
    assert fields(done, "key", "outcome", "deleted") == [None, "done", ["a/b"]]
    assert fields(done, "generation") == [4]
    names = ("outcome", "status", "error", "ids", "generation")
    assert fields(refused, *names) == ["refused", 404, "unknown_id", ["nobody"], None]
    assert refused.levelno == logging.WARNING
    assert fields(failed, "outcome", "ids") == ["failed", ["new\nline"]]


async def test_what_never_reached_the_index_is_told_too_without_keys_and_contents(
    door: Open, keys_file: Path, keys: dict[str, str], lines: list[logging.LogRecord]
) -> None:
    secrets = (*keys.values(), "wrong-key")
    async with door(keys_file=keys_file) as client:
        await client.post("/v1/items/texts", json=TEXT)
        await client.post("/v1/items/texts", json=TEXT, headers={"x-api-key": keys["read"]})
        await client.post("/v1/items/texts", json={}, headers={"x-api-key": keys["write"]})
        told = [fields(line, "outcome", "status", "error", "key") for line in lines]
        assert told == [
            ["refused", 401, "unauthorized", None],
            ["refused", 403, "missing_scope", "read"],
            ["refused", 422, "invalid_field", "write"],
        ]
        for secret in secrets:
            await client.post("/v1/items/texts", json=TEXT, headers={"x-api-key": secret})
            await client.delete("/v1/items/texts/a%0Db", headers={"x-api-key": secret})
        await client.delete("/v1/items/texts/" + "x" * 30_000)
        await client.delete("/v1/items/texts/" + "y" * 1000)
    assert len(lines) == 3 + 2 * len(secrets) + 2
    for line in lines:
        written = line.getMessage() + repr(fields(line))
        assert line.getMessage().isprintable()
        assert len(line.getMessage()) < 2500
        assert not any(secret in written for secret in (*secrets, "business"))
    assert [len(fields(line)["path"]) for line in lines[-2:]] == [2000, 1016]  # cut


async def test_what_became_of_a_write_by_its_status(lines: list[logging.LogRecord]) -> None:
    statuses = {None: "failed", 399: "done", 400: "refused", 499: "refused", 500: "failed"}
    for status in statuses:
        record = WriteRecord(target="texts", ids=["a"])
        log_write(record, key_name=None, client="::1", method="POST", path="/v1", status=status)
    assert [fields(line, "outcome") for line in lines] == [[each] for each in statuses.values()]

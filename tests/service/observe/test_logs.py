"""Log lines on stderr: for people, and for programs."""

from __future__ import annotations

import json
import logging
import re
import warnings
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from aladin_service.cli import app
from aladin_service.observe.logs import (
    CURRENT_REQUEST,
    LogFormat,
    LogSetup,
    RequestRecord,
    StderrHandler,
    log_setup,
    log_to_stderr,
)

LOG = logging.getLogger("service.test")
Lines = Callable[[], list[dict[str, Any]]]


@pytest.fixture(autouse=True)
def unchanged_logging() -> Iterator[None]:
    """Take what a test set up away again."""
    root = logging.getLogger()
    level = root.level
    yield
    logging.captureWarnings(False)
    root.handlers = [each for each in root.handlers if not isinstance(each, StderrHandler)]
    root.setLevel(level)


@pytest.fixture
def in_request() -> Iterator[RequestRecord]:
    """A request that is being answered."""
    record = RequestRecord("id-1")
    before = CURRENT_REQUEST.set(record)
    yield record
    CURRENT_REQUEST.reset(before)


@pytest.fixture
def lines(capsys: pytest.CaptureFixture[str]) -> Lines:
    """Logs JSON from now on, and reads the lines since the last call."""
    log_to_stderr(LogSetup(format="json"))
    return lambda: [json.loads(line) for line in capsys.readouterr().err.splitlines()]


def test_a_text_line_ends_with_the_id_of_its_request(
    capsys: pytest.CaptureFixture[str], in_request: RequestRecord
) -> None:
    assert in_request
    log_to_stderr(LogSetup())
    LOG.info("%d items", 3)
    assert re.fullmatch(r"\d\d:\d\d:\d\d INFO 3 items \[id-1\]\n", capsys.readouterr().err)


def test_brief_messages_are_those_that_matter_to_a_person(
    capsys: pytest.CaptureFixture[str],
) -> None:
    log_to_stderr(LogSetup(brief=True))
    LOG.info("listening")
    logging.getLogger("aladin_network.conversion.named_models").info("converting a model")
    LOG.warning("tried again")
    assert capsys.readouterr().err == "converting a model\nwarning: tried again\n"
    log_to_stderr(LogSetup(brief=True, debug=True))
    LOG.info("listening")
    assert re.fullmatch(r"\d\d:\d\d:\d\d INFO listening\n", capsys.readouterr().err)


def test_a_json_line_says_when_who_and_what(lines: Lines) -> None:
    before = datetime.now(UTC)
    LOG.warning("a %s\nwith two lines", "tëxt")
    try:
        raise ValueError("broken")
    except ValueError:
        LOG.exception("it failed")
    line, failed = lines()
    assert set(line) == {"time", "level", "logger", "pid", "message"}
    found = line["message"], line["level"], line["logger"]
    assert found == ("a tëxt\nwith two lines", "WARNING", "service.test")
    assert abs((datetime.fromisoformat(line["time"]) - before).total_seconds()) < 60
    assert failed["message"] == "it failed"  # its traceback is one field
    assert failed["exception"].startswith("Traceback (most recent call last)")
    assert failed["exception"].endswith("ValueError: broken")


def test_a_json_line_within_a_request_holds_its_ids(
    in_request: RequestRecord, lines: Lines
) -> None:
    LOG.info("first")
    in_request.trace_id = "0af7651916cd43dd8448eb211c80319c"
    LOG.info("second")
    ids = [(line["request_id"], line.get("trace_id")) for line in lines()]
    assert ids == [("id-1", None), ("id-1", in_request.trace_id)]


def test_pythons_warnings_are_json_lines_too(lines: Lines) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("always")
        logging.captureWarnings(True)
        warnings.warn("careful", UserWarning, stacklevel=1)
        (line,) = lines()
        logging.captureWarnings(False)
    assert (line["logger"], "careful" in line["message"]) == ("py.warnings", True)


@pytest.mark.parametrize("format", ["text", "json"])
@pytest.mark.parametrize("debug", [False, True])
def test_the_last_setup_counts_and_can_be_handed_on(
    format: LogFormat, debug: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    log_to_stderr(LogSetup(debug=not debug, format="text", brief=True))
    log_to_stderr(LogSetup(debug=debug, format=format))
    assert log_setup() == LogSetup(debug=debug, format=format)
    LOG.debug("detail")
    LOG.info("fact")
    logging.getLogger("third.party").info("chatter")
    lines = capsys.readouterr().err.splitlines()
    assert ["detail" in line for line in lines] == ([True, False] if debug else [False])


# 192.0.2.1 is nobody's address (RFC 5737); "file" is none where a folder is needed.
@pytest.mark.parametrize(
    "command",
    [
        ["serve", ".", "--host", "192.0.2.1", "--log-format", "json"],
        ["prepare", "index", "--demo", "file"],
        ["demo", "--out", "file"],
    ],
)
def test_a_service_that_cannot_start_or_be_prepared_says_so_in_one_json_line(
    command: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("ALADIN_LOG_FORMAT", "json")
    Path("file").touch()
    result = CliRunner().invoke(app, command)
    last = [json.loads(line) for line in result.stderr.splitlines()][-1]
    assert result.exit_code == 2
    assert (last["level"], last["logger"]) == ("ERROR", "aladin_service.cli")
    assert last["message"]

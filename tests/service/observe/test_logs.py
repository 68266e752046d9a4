"""Log lines on stderr: for people, and for programs."""

from __future__ import annotations

import json
import logging
import re
import warnings
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

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


def test_a_text_line(capsys: pytest.CaptureFixture[str]) -> None:
    log_to_stderr(LogSetup())
    LOG.info("%d items", 3)
    assert re.fullmatch(r"\d\d:\d\d:\d\d INFO 3 items\n", capsys.readouterr().err)


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
    assert "INFO listening" in capsys.readouterr().err


@pytest.mark.usefixtures("in_request")
def test_a_text_line_within_a_request_ends_with_its_id(capsys: pytest.CaptureFixture[str]) -> None:
    log_to_stderr(LogSetup())
    LOG.info("something")
    assert capsys.readouterr().err.endswith("INFO something [id-1]\n")


def test_a_json_line_says_when_who_and_what(capsys: pytest.CaptureFixture[str]) -> None:
    log_to_stderr(LogSetup(format="json"))
    before = datetime.now(UTC)
    LOG.warning("a %s\nwith two lines", "tëxt")
    (text,) = capsys.readouterr().err.splitlines()
    line = json.loads(text)
    assert set(line) == {"time", "level", "logger", "pid", "message"}
    assert line["message"] == "a tëxt\nwith two lines"
    assert (line["level"], line["logger"]) == ("WARNING", "service.test")
    assert abs((datetime.fromisoformat(line["time"]) - before).total_seconds()) < 60


def test_a_json_line_within_a_request_holds_its_ids(
    in_request: RequestRecord, capsys: pytest.CaptureFixture[str]
) -> None:
    log_to_stderr(LogSetup(format="json"))
    LOG.info("first")
    in_request.trace_id = "0af7651916cd43dd8448eb211c80319c"
    LOG.info("second")
    first, second = map(json.loads, capsys.readouterr().err.splitlines())
    assert first["request_id"] == second["request_id"] == "id-1"
    assert "trace_id" not in first
    assert second["trace_id"] == in_request.trace_id


def test_a_traceback_is_one_field_of_its_line(capsys: pytest.CaptureFixture[str]) -> None:
    log_to_stderr(LogSetup(format="json"))
    try:
        raise ValueError("broken")
    except ValueError:
        LOG.exception("it failed")
    (line,) = map(json.loads, capsys.readouterr().err.splitlines())
    assert line["message"] == "it failed"
    assert line["exception"].startswith("Traceback (most recent call last)")
    assert line["exception"].endswith("ValueError: broken")


def test_pythons_warnings_are_json_lines_too(capsys: pytest.CaptureFixture[str]) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("always")
        log_to_stderr(LogSetup(format="json"))
        warnings.warn("careful", UserWarning, stacklevel=1)
        (line,) = map(json.loads, capsys.readouterr().err.splitlines())
        logging.captureWarnings(False)
    assert line["logger"] == "py.warnings"
    assert "careful" in line["message"]


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


def test_a_service_that_cannot_start_says_so_in_one_json_line(tmp_path: Path) -> None:
    # 192.0.2.1 is nobody's address (RFC 5737).
    command = ["serve", str(tmp_path), "--host", "192.0.2.1", "--log-format", "json"]
    result = CliRunner().invoke(app, command)
    lines = [json.loads(line) for line in result.stderr.splitlines()]
    assert result.exit_code == 2
    assert lines[-1]["level"] == "ERROR"
    assert lines[-1]["logger"] == "aladin_service.cli"
    assert lines[-1]["message"]


@pytest.mark.parametrize(
    "command", [["prepare", "index", "--demo", "file"], ["demo", "--out", "file"]]
)
def test_what_prepares_a_service_writes_as_the_service_does(
    command: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("ALADIN_LOG_FORMAT", "json")
    Path("file").touch()  # where a folder is needed
    result = CliRunner().invoke(app, command)
    lines = [json.loads(line) for line in result.stderr.splitlines()]
    assert result.exit_code == 2
    assert (lines[-1]["level"], lines[-1]["logger"]) == ("ERROR", "aladin_service.cli")

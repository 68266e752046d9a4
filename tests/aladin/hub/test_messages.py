"""Warnings of the hub's library: each once, and by this project's handlers."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest

from aladin_network.conversion.named_models import named_model
from aladin_network.errors import CheckpointError
from aladin_network.hub.messages import one_hub_warning

LIBRARY = logging.getLogger("huggingface_hub.utils._http")


def test_a_warning_is_logged_once_and_attempts_are_not(
    caplog: pytest.LogCaptureFixture, capsys: pytest.CaptureFixture[str]
) -> None:
    with one_hub_warning():
        for attempt in range(1, 4):
            LIBRARY.warning("'no connection' thrown while requesting\n HEAD http://hub/a")
            LIBRARY.warning("Retrying in %ss [Retry %s/5].", attempt, attempt)
        LIBRARY.warning("'no connection' thrown while requesting HEAD http://hub/b")
    assert [(record.name, record.getMessage()) for record in caplog.records] == [
        (
            "aladin_network.hub.messages",
            f"the hub's library: 'no connection' thrown while requesting HEAD http://hub/{name}",
        )
        for name in "ab"
    ]
    assert "requesting\n" not in capsys.readouterr().err  # as the library writes it


def test_outside_the_library_logs_as_it_did(caplog: pytest.LogCaptureFixture) -> None:
    root = logging.getLogger("huggingface_hub")
    with one_hub_warning():
        inside = root.handlers
    assert root.handlers != inside
    with pytest.raises(ZeroDivisionError), one_hub_warning():
        raise ZeroDivisionError
    LIBRARY.warning("something else")
    assert [record.name for record in caplog.records] == [LIBRARY.name]


def test_a_model_that_is_looked_for_on_a_hub_that_cannot_be_reached(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def unreachable(*_: object, **__: object) -> str:
        for _attempt in range(6):
            LIBRARY.warning("'no connection' thrown while requesting HEAD http://hub/a")
        raise OSError("no connection")

    monkeypatch.setattr("huggingface_hub.snapshot_download", unreachable)
    with pytest.raises(CheckpointError, match="the hub cannot be reached"):
        named_model("someone/nothing", lambda: tmp_path)
    warnings = [record for record in caplog.records if record.levelno == logging.WARNING]
    assert len(warnings) == 1

"""Worker processes that cannot be started."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest

from aladin_service.settings import ServiceSettings
from aladin_service.work import process_start
from aladin_service.work.worker import WorkerPlan


def test_a_start_that_fails_leaves_no_socket(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    pair = socket.socketpair()
    monkeypatch.setattr(process_start.socket, "socketpair", lambda: pair)

    def fail(**_: object) -> None:
        raise OSError("no room for another process")

    monkeypatch.setattr(process_start, "prepare_processes", lambda *_: None)
    monkeypatch.setattr(process_start._CONTEXT, "Process", fail)
    with pytest.raises(OSError, match="no room"):
        process_start.start_process(WorkerPlan(index=tmp_path, settings=ServiceSettings()))
    assert [each.fileno() for each in pair] == [-1, -1]

"""``aladin demo`` where it cannot serve what it makes."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest
from typer.testing import CliRunner

from aladin_service.cli import app


def test_a_taken_port_is_an_error_before_anything_is_drawn(tmp_path: Path) -> None:
    out = tmp_path / "demo"
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        result = CliRunner().invoke(app, ["demo", "--out", str(out), "--port", str(port)])
    assert result.exit_code == 2
    last = result.stderr.splitlines()[-1]
    assert f"cannot listen on 127.0.0.1, port {port}: " in last
    assert "choose another with --port" in last
    assert not out.exists()


@pytest.mark.parametrize("host", ["0.0.0.0", "::"])
def test_so_is_an_address_that_takes_keys(tmp_path: Path, host: str) -> None:
    out = tmp_path / "demo"
    result = CliRunner().invoke(app, ["demo", "--out", str(out), "--host", host])
    assert result.exit_code == 2
    assert "without keys the service listens on 127.0.0.1 only" in result.stderr
    assert not out.exists()

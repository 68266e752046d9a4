import socket
import sys
import time
from typing import Any

import pytest

from aladin_index.cluster.pool import WorkerSettings
from aladin_index.cluster.ray_encoding import connected
from aladin_network.errors import ClusterError, ConfigError


def closed_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return listener.getsockname()[1]


@pytest.mark.parametrize("scheme", ["", "ray://"])
def test_an_address_where_nobody_listens_is_refused_at_once(scheme: str) -> None:
    address = f"{scheme}127.0.0.1:{closed_port()}"
    began_s = time.monotonic()
    with (
        pytest.raises(ClusterError, match=f"no answer from {address}: Connection refused"),
        connected(address),
    ):
        pass
    assert time.monotonic() - began_s < 10  # Ray itself tries for minutes


def no_node(**_: object) -> None:
    raise ConnectionError("Could not find any running Ray instance.")


@pytest.mark.parametrize(
    ("address", "error", "says"),
    [
        *[
            (address, ConfigError, f"'{address}': expected HOST:PORT, ray://HOST:PORT, auto")
            for address in ("", "somewhere", "http://127.0.0.1:6379", "host:port")
        ],
        ("auto", ClusterError, "at auto cannot be used: this machine is no node"),
        ("without ray", ConfigError, r"pip install 'aladin-search\[ray\]'"),
    ],
)
def test_what_is_no_cluster_is_refused(
    address: str, error: type[Exception], says: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ray.init", no_node)
    if address == "without ray":
        monkeypatch.setitem(sys.modules, "ray", None)
        address = "auto"
    with pytest.raises(error, match=says), connected(address):
        pass


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"cpus": 0}, "cpus: expected at least 1, got 0"),
        ({"gpus": -1}, "gpus: expected at least 0, got -1"),
        ({"workers": 0}, "workers: expected at least 1, got 0"),
        ({"start_timeout_s": 0.0}, "start_timeout_s: expected more than 0, got 0"),
    ],
)
def test_impossible_settings_of_workers_are_refused(change: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        WorkerSettings(**change)

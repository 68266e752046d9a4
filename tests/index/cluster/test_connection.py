import socket
import sys
import time

import pytest

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


@pytest.mark.parametrize("address", ["", "somewhere", "http://127.0.0.1:6379", "host:port"])
def test_an_invalid_address_is_refused(address: str) -> None:
    with (
        pytest.raises(ConfigError, match=f"'{address}': expected HOST:PORT, ray://HOST:PORT, auto"),
        connected(address),
    ):
        pass


def test_without_ray_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    with (
        pytest.raises(ConfigError, match=r"pip install 'aladin-search\[ray\]'"),
        connected("auto"),
    ):
        pass


def test_a_machine_that_is_no_node_is_told_so(monkeypatch: pytest.MonkeyPatch) -> None:
    def init(**_: object) -> None:
        raise ConnectionError("Could not find any running Ray instance.")

    monkeypatch.setattr("ray.init", init)
    with (
        pytest.raises(ClusterError, match="at auto cannot be used: this machine is no node"),
        connected("auto"),
    ):
        pass

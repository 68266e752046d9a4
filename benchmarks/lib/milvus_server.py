"""A real Milvus server in a process of its own, which can be killed and started again.

It is the standalone server of the `milvus` package: etcd, the log and the object store run in its
process, and all its data is in one folder.

    python -m benchmarks.lib.milvus_server FOLDER [--port 19530]
"""

from __future__ import annotations

import argparse
import importlib
import json
import lzma
import shutil
import signal
import urllib.error
import urllib.request
from pathlib import Path
from types import TracebackType
from typing import Any

from aladin_network.files import atomic_folder
from benchmarks.lib.processes import ChildProcess, free_ports

_READY_S, _STOP_S, _LOOK_S = 120.0, 2.0, 0.1
# The first settings let a killed server answer again sooner: the sessions of its parts end after 5
# seconds instead of 30, parts look for each other each second, and the part of the log that is not
# yet written out and has to be read again covers 10 seconds instead of 600. The others make a
# collection ready sooner: its state is looked at ten times a second.
_SETTINGS = {
    "QUERYCOORD_CHECKINTERVAL": "100",
    "QUERYCOORD_DISTPULLINTERVAL": "100",
    "COMMON_SESSION_TTL": "5",
    "GRPC_CLIENT_MAXBACKOFF": "1",
    "DATANODE_SEGMENT_SYNCPERIOD": "10",
    "DATANODE_CHANNEL_UPDATECHANNELCHECKPOINTINTERVAL": "5",
}


class MilvusServer:
    """A server on a free port of 127.0.0.1, running while the context is active.

        with MilvusServer(folder) as server:
            server.url
            server.kill()
            server.start()  # on the same data, at the same address

    Attributes:
        folder: Folder with its data, settings and logs.
        url: Address such as http://127.0.0.1:40123.
    """

    def __init__(self, folder: Path, port: int | None = None) -> None:
        """Prepare a server; nothing is started yet.

        Args:
            folder: Empty folder, or that of an earlier server.
            port: Port to listen on, or None for a free one.
        """
        self.folder = folder.absolute()
        self.port = port or free_ports(1)[0]
        self.url = f"http://127.0.0.1:{self.port}"
        self._process: ChildProcess | None = None

    def __enter__(self) -> MilvusServer:
        """Start the server, see `start`."""
        try:
            self.start()
        except BaseException:
            self.stop()
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """End the server; its folder stays."""
        self.stop()

    def start(self) -> None:
        """Start the server; return when it responds.

        Raises:
            ImportError: If the `milvus` package is not installed.
            RuntimeError: If the server ends, or does not answer in time.
        """
        programs = _unpacked_programs()
        # The ports between its parts are new ones each time: no client uses them.
        health, *others = free_ports(10)
        etcd_settings = self._write_settings(others)
        self._process = ChildProcess(
            [programs / "milvus", "run", "standalone"],
            self.folder / "logs" / "milvus.log",
            folder=self.folder,
            orphan_signal=signal.SIGKILL,
            settings={
                "DEPLOY_MODE": "STANDALONE",
                **_SETTINGS,
                "ETCD_CONFIG_PATH": str(etcd_settings),
                "METRICS_PORT": str(health),
                "MILVUS_RUN_DIR": str(self.folder / "run"),
                "LD_LIBRARY_PATH": str(programs),
            },
        )
        self._process.wait_until(lambda: _is_healthy(health), _READY_S, _LOOK_S)

    @property
    def pid(self) -> int:
        """Process id of the server."""
        assert self._process is not None  # started
        return self._process.pid

    def kill(self) -> None:
        """End the server with SIGKILL, as a crash would."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()

    def stop(self) -> None:
        """End the server with SIGTERM; kill it if that takes too long."""
        if self._process is not None:
            self._process.stop(_STOP_S)

    def _write_settings(self, ports: list[int]) -> Path:
        """Write the folder's settings: the package's own, with these ports.

        Returns:
            Settings file of etcd, whose default ports are fixed: one server per machine.
        """
        client, peer, *rest = ports
        names = ("root_coord", "proxy_internal", "query_coord", "query_node", "index_node")
        named = dict(zip((*names, "data_coord", "data_node"), rest, strict=True))
        config = _milvus().MilvusServerConfig(data_dir=str(self.folder))
        config.resolve_storage()
        # Not `resolve`, which refuses the port of a server that was killed a moment ago.
        for name, port in (named | {"proxy": self.port, "etcd": client}).items():
            config.set(f"{name}_port", port)
        config.write_config()
        path = self.folder / "configs" / "etcd.json"
        addresses = {"client": f"http://127.0.0.1:{client}", "peer": f"http://127.0.0.1:{peer}"}
        urls = {
            f"{use}-{kind}-urls": address
            for kind, address in addresses.items()
            for use in ("listen", "initial-advertise" if kind == "peer" else "advertise")
        }
        etcd = {"initial-cluster": f"default={addresses['peer']}", **urls}
        path.write_text(json.dumps(etcd, indent=2), encoding="utf-8")
        return path


def _milvus() -> Any:
    return importlib.import_module("milvus")


def _unpacked_programs() -> Path:
    """Return the folder with the server's programs, which the package contains compressed.

    They are unpacked once (246 MB, 5 s) and used by all servers of this user.
    """
    package = _milvus()
    folder = Path(package.MilvusServerConfig.get_default_data_dir()) / "unpacked"
    if not folder.exists():
        with atomic_folder(folder) as partial:
            for packed in (Path(package.__file__).parent / "data" / "bin").glob("*.lzma"):
                program = partial / packed.stem
                with lzma.open(packed) as source, program.open("wb") as target:
                    shutil.copyfileobj(source, target)
                program.chmod(0o755)
    return folder


def _is_healthy(port: int) -> bool:
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/healthz", timeout=5) as answer:
            return b"OK" in answer.read()
    except (urllib.error.URLError, OSError):
        return False


def main() -> None:
    """Run a server until it is interrupted."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--port", type=int)
    arguments = parser.parse_args()
    with MilvusServer(arguments.folder, arguments.port) as server:
        print(server.url, flush=True)
        signal.sigwait({signal.SIGINT, signal.SIGTERM})


if __name__ == "__main__":
    main()

"""A service with a full disk: it reports errors, loses nothing, and recovers with space.

`benchmarks.service.faults` runs it. The index is on a small disk in memory that only this process
and its children see; if the system does not permit that, a limit of the file size makes writes fail
instead. Photos are added, and searches sent, until the disk is full and beyond.

    disk             how writes were made to fail
    acknowledged     photos whose addition was acknowledged
    rejected         photos that were rejected because the disk was full
    codes            statuses and codes of the rejections: only 507 cannot_write
    searches_failed  failed searches, sent while the disk was full and afterwards
    lost             acknowledged photos that are missing
    half             rejected photos that are in the index
    added_again      rejected photos that could be added once there was space
    valid            whether `aladin index verify` finds no fault in the final index
"""

from __future__ import annotations

import json
import os
import resource
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np

from aladin_index.generations.verify import verify_index
from benchmarks.lib.service_process import ServiceProcess
from benchmarks.lib.small_collection import photo_fields, random_png
from benchmarks.service.swap_index import SwapIndex, some_texts

_DISK_BYTES = 16 * 2**20
# Space left for the photos, which take some 25 kB each with their data in the index.
_ROOM_BYTES = 2 * 2**20
_PHOTO_PX = 64
_MOST_PHOTOS, _REJECTIONS = 400, 5


def fill_and_add() -> dict[str, Any]:
    """Run the measurement, if possible on a separate disk; return the figures to print."""
    own = ["--user", "--map-root-user"] if os.geteuid() != 0 else []
    command = [sys.executable, "-m", "benchmarks.service.full_disk"]
    if shutil.which("unshare"):
        namespace = ["unshare", *own, "--mount", "--"]
        permitted = [*namespace, "sh", "-c", "mount -t tmpfs none /mnt"]
        if subprocess.run(permitted, capture_output=True, check=False).returncode == 0:
            command = [*namespace, *command, "--mount"]
    done = subprocess.run(command, stdout=subprocess.PIPE, check=True)
    return json.loads(done.stdout)


class _SmallDisk:
    """A disk in memory, mounted for this process alone."""

    name = f"tmpfs of {_DISK_BYTES // 2**20} MiB"

    def __init__(self, folder: Path) -> None:
        size = f"size={_DISK_BYTES}"
        subprocess.run(["mount", "-t", "tmpfs", "-o", size, "none", str(folder)], check=True)
        self._filler = folder / "filler"

    def fill(self, service: ServiceProcess) -> None:
        """Leave little free space."""
        del service
        free = shutil.disk_usage(self._filler.parent).free
        self._filler.write_bytes(bytes(max(0, free - _ROOM_BYTES)))

    def make_room(self, service: ServiceProcess) -> None:
        """Leave much free space."""
        del service
        self._filler.unlink()


class _SmallFiles:
    """The kernel's file size limit, set for the processes of the service."""

    name = f"files of at most {_ROOM_BYTES // 2**20} MiB"

    def fill(self, service: ServiceProcess) -> None:
        """Make writes beyond a small size fail."""
        self._limit(service, _ROOM_BYTES)

    def make_room(self, service: ServiceProcess) -> None:
        """Allow all writes."""
        self._limit(service, resource.RLIM_INFINITY)

    def _limit(self, service: ServiceProcess, soft: int) -> None:
        for pid in service.pids():
            _, hard = resource.prlimit(pid, resource.RLIMIT_FSIZE)
            resource.prlimit(pid, resource.RLIMIT_FSIZE, (soft, hard))


def _measure(folder: Path, disk: _SmallDisk | _SmallFiles) -> dict[str, Any]:
    index = SwapIndex(folder / "index", some_texts())
    with ServiceProcess(index.root, ["--workers", "2"]) as service:
        client = _Client(service)
        disk.fill(service)
        acknowledged: list[str] = []
        rejected: dict[str, list[Any]] = {}
        searches_failed = number = 0
        while len(rejected) < _REJECTIONS and number < _MOST_PHOTOS:
            name, number = f"full-{number}", number + 1
            status, answer = client.add(name)
            if status == 201:
                acknowledged.append(name)
            else:
                rejected[name] = [status, answer["error"]["code"]]
                searches_failed += client.search() != 200
        half = sum(client.is_there(name) for name in rejected)
        lost = sum(not client.is_there(name) for name in acknowledged)
        disk.make_room(service)
        added_again = sum(client.add(name)[0] == 201 for name in rejected)
        lost += sum(not client.is_there(name) for name in (*acknowledged, *rejected))
        searches_failed += client.search() != 200
    verify_index(index.root)
    return {
        "disk": disk.name,
        "acknowledged": len(acknowledged),
        "rejected": len(rejected),
        "codes": sorted({f"{status} {code}" for status, code in rejected.values()}),
        "searches_failed": searches_failed,
        "lost": lost,
        "half": half,
        "added_again": added_again,
        "valid": True,  # otherwise `verify_index` has raised
    }


class _Client:
    def __init__(self, service: ServiceProcess) -> None:
        self._service = service
        self._random = np.random.default_rng(0)

    def add(self, name: str) -> tuple[int, Any]:
        """Add an incompressible photo; return the status and the body of the response."""
        fields = photo_fields(name, random_png(self._random, _PHOTO_PX))
        status, body = self._service.ask("POST", "/v1/items/images", fields)
        return status, json.loads(body)

    def search(self) -> int:
        """Search; return the status of the response."""
        return self._service.ask("POST", "/v1/search/images", {"text": "two dogs run"})[0]

    def is_there(self, name: str) -> bool:
        """Return whether an item of this name exists, with its photo."""
        statuses = [
            self._service.ask("GET", f"/v1/items/images/{name}")[0],
            self._service.ask("GET", f"/v1/images/{name}?size=32")[0],
        ]
        return statuses == [200, 200]


def main() -> None:
    """Measure on a disk mounted here, if the options permit that; print JSON."""
    with tempfile.TemporaryDirectory() as folder:
        disk = _SmallDisk(Path(folder)) if "--mount" in sys.argv else _SmallFiles()
        try:
            figures = _measure(Path(folder), disk)
        finally:
            if "--mount" in sys.argv:
                subprocess.run(["umount", folder], check=True)
    print(json.dumps(figures))


if __name__ == "__main__":
    main()

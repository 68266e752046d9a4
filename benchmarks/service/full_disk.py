"""A service with a full disk: it reports errors, loses nothing, and recovers with space.

`benchmarks.service.faults` runs it. The index lies on a small disk of its own, in memory, which
only this process and its children see; where the system does not permit that, the kernel refuses
writes beyond a file size instead. Photos are added until the disk is full, searches are asked all
along.

    disk             how it was made full
    acknowledged     photos that were added: each is there in the end
    refused          photos that were refused for lack of room: none is there
    codes            of the refusals: 507, cannot_write, and no other
    searches_failed  of those asked while the disk was full
    lost, half       acknowledged photos that are gone; refused ones that are there
    added_again      of the refused photos, those that could be added when there was room
    sound            whether every byte of the index is as it should be in the end
"""

from __future__ import annotations

import base64
import io
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
from PIL import Image

from aladin_index.generations.verify import verify_index
from benchmarks.lib.service_process import ServiceProcess
from benchmarks.service.swap_index import SwapIndex, some_texts

_DISK_BYTES = 16 * 2**20
# Space left for the photos, which take some 25 kB each with their data in the index.
_ROOM_BYTES = 2 * 2**20
_PHOTO_PX = 64
_MOST_PHOTOS, _REFUSALS = 400, 5


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
        """Refuse writes beyond a small size."""
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
        refused: dict[str, list[Any]] = {}
        searches_failed = number = 0
        while len(refused) < _REFUSALS and number < _MOST_PHOTOS:
            name, number = f"full-{number}", number + 1
            status, answer = client.add(name)
            if status == 201:
                acknowledged.append(name)
            else:
                refused[name] = [status, answer["error"]["code"]]
                searches_failed += client.search() != 200
        half = sum(client.is_there(name) for name in refused)
        lost = sum(not client.is_there(name) for name in acknowledged)
        disk.make_room(service)
        added_again = sum(client.add(name)[0] == 201 for name in refused)
        lost += sum(not client.is_there(name) for name in (*acknowledged, *refused))
        searches_failed += client.search() != 200
    verify_index(index.root)
    return {
        "disk": disk.name,
        "acknowledged": len(acknowledged),
        "refused": len(refused),
        "codes": sorted({f"{status} {code}" for status, code in refused.values()}),
        "searches_failed": searches_failed,
        "lost": lost,
        "half": half,
        "added_again": added_again,
        "sound": True,  # or `verify_index` had raised
    }


class _Client:
    def __init__(self, service: ServiceProcess) -> None:
        self._service = service
        self._random = np.random.default_rng(0)

    def add(self, name: str) -> tuple[int, Any]:
        """Add an incompressible photo."""
        shape = (_PHOTO_PX, _PHOTO_PX, 3)
        file = io.BytesIO()
        Image.fromarray(self._random.integers(0, 256, shape, dtype=np.uint8)).save(file, "PNG")
        photo = base64.b64encode(file.getvalue()).decode()
        fields = {"id": name, "image": photo}
        status, body = self._service.ask("POST", "/v1/items/images", fields)
        return status, json.loads(body)

    def search(self) -> int:
        """Search; return the status of the response."""
        return self._service.ask("POST", "/v1/search/images", {"text": "two dogs run"})[0]

    def is_there(self, name: str) -> bool:
        """Return whether an item of this name and its photo exist."""
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

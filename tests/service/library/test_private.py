"""A library on a machine of several users: files, the key of the page, links out of the folders."""

from __future__ import annotations

import os
import stat
import subprocess
import sys
import time
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import httpx
import pytest
from PIL import Image

from aladin_service.library.libraries import LibraryPlace
from tests.service.conftest import make_photo

ALLOWED = {"GET /", "GET /healthz", "GET /readyz"}
REFUSED = {
    "GET /v1/index",
    "GET /v1/images/one.png",
    "POST /v1/search/images",
    "DELETE /v1/items/images/one.png",
}


@contextmanager
def serving(
    folders: list[Path], model: Path, place: Path
) -> Generator[tuple[subprocess.Popen[str], str, Path]]:
    """Run ``aladin photos``; yields it, the address that it prints and the file of its messages."""
    environment = os.environ | {
        "ALADIN_LIBRARIES_DIR": str(place / "libraries"),
        "OMP_NUM_THREADS": "1",
    }
    words = ["photos", *map(str, folders), "--model", str(model), "--no-browser", "--port", "0"]
    messages = place / "messages.txt"
    with (
        messages.open("a") as errors,
        subprocess.Popen(
            [sys.executable, "-m", "aladin_service", *words],
            stdout=subprocess.PIPE,
            stderr=errors,
            text=True,
            env=environment,
        ) as running,
    ):
        assert running.stdout is not None
        try:
            address = running.stdout.readline().strip()
            assert address, messages.read_text(encoding="utf-8")
            yield running, address, messages
        finally:
            running.terminate()


@pytest.fixture
def folders(tmp_path: Path) -> list[Path]:
    """Two folders; the first has a link into the second, and one to a private photo."""
    one, two, private = (tmp_path / name for name in ("one", "two", "private"))
    for number, folder in enumerate((one, two, private)):
        folder.mkdir()
        make_photo(number).save(folder / f"{folder.name}.png")
    (one / "inside.png").symlink_to(two / "two.png")
    (one / "outside.png").symlink_to(private / "private.png")
    make_photo(4).save(one / "later.png")
    return [one, two]


def test_a_library_is_for_its_user_alone(
    folders: list[Path], tiny_checkpoint: Path, tmp_path: Path
) -> None:
    with serving(folders, tiny_checkpoint, tmp_path) as (_, address, messages):
        parts = urlsplit(address)
        [token] = parse_qs(parts.query)["token"]
        with httpx.Client(base_url=f"http://{parts.netloc}", timeout=30) as stranger:
            assert {
                f"{method} {path}": stranger.request(method, path).status_code
                for method, path in map(str.split, REFUSED | ALLOWED)
            } == dict.fromkeys(REFUSED, 401) | dict.fromkeys(ALLOWED, 200)

        [library] = (tmp_path / "libraries").iterdir()
        for folder in (library.parent, library):
            assert stat.S_IMODE(folder.stat().st_mode) == 0o700
        for name in ("secret", "keys.json"):
            assert stat.S_IMODE((library / name).stat().st_mode) == 0o600

        keyed = {"Authorization": f"Bearer {token}"}
        with httpx.Client(base_url=f"http://{parts.netloc}", headers=keyed, timeout=30) as owner:
            until_s = time.monotonic() + 300
            while "outside.png" not in messages.read_text(encoding="utf-8"):
                assert time.monotonic() < until_s
                time.sleep(0.1)
            listed = owner.get("/v1/items/images").json()["items"]
            # A link inside the followed folders is a photo like any other.
            assert {item["id"] for item in listed} == {
                *("one.png", "inside.png", "later.png", "two.png")
            }
            assert owner.get("/v1/images/inside.png").status_code == 200
            # What becomes a link later is not shown, even before a pass has seen it.
            assert owner.get("/v1/images/later.png").status_code == 200
            Image.new("RGB", (64, 64), "white").save(tmp_path / "private" / "new.png")
            (folders[0] / "later.png").unlink()
            (folders[0] / "later.png").symlink_to(tmp_path / "private" / "new.png")
            assert owner.get("/v1/images/later.png").status_code == 404
        skipped = messages.read_text(encoding="utf-8")
        assert "outside.png: a link to a file outside of the followed folders" in skipped

        with serving(folders, tiny_checkpoint, tmp_path) as (second, same, _):
            assert same == address
            assert second.wait(120) == 0
    assert LibraryPlace(place=library).keys()[1] == token  # an open page works on

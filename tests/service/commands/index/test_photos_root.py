"""Photos outside of a root are neither taken nor shown; without one they are warned of."""

from __future__ import annotations

import logging
import shutil
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from pathlib import Path

import httpx
import numpy as np
import pytest
from typer.testing import CliRunner, Result

from aladin_service.cli import app
from tests.service.commands.conftest import aladin, write_lines

Service = Callable[..., AbstractAsyncContextManager[httpx.AsyncClient]]
# How a source reaches a photo of someone else, and what a warning calls it.
WAYS = {
    "dots": "by '..'",
    "absolute": "by an absolute path",
    "linked line": "by a link",
    "linked file": "by a link",
    "import": "by an absolute path",
}
pytestmark = pytest.mark.anyio


class Source:
    """A data set of a photo of its own, own.png, and one of someone else's, stolen.png."""

    def __init__(self, way: str, folder: Path, stolen: Path, photo: Path) -> None:
        folder.mkdir()
        shutil.copyfile(photo, folder / "own.png")
        self.command, self.path = "build", folder
        if way == "import":
            self.command = "import"
            write_encodings(folder, [str(folder / "own.png"), str(stolen)])
        elif way == "linked file":
            (folder / "stolen.png").symlink_to(stolen)
        else:
            names = {"dots": "../private/passport.png", "absolute": str(stolen)}
            name = names.get(way, "link.png")
            if way == "linked line":
                (folder / name).symlink_to(stolen)
            items = {"own.png": "own.png", "stolen.png": name}.items()
            lines = [{"id": item, "image": image, "captions": []} for item, image in items]
            self.path = write_lines(folder / "data.jsonl", *lines)

    def build(self, model: Path, index: Path, *options: object, code: int = 0) -> Result:
        source = [self.path] if self.command == "import" else ["--images", self.path]
        words = [self.command, *source, "--model", model, "--out", index]
        return aladin("index", *words, *options, code=code)


def write_encodings(folder: Path, photos: list[str]) -> None:
    import pyarrow
    from pyarrow.parquet import write_table

    for name in ("img_emb", "metadata"):
        (folder / name).mkdir()
    vectors = np.random.default_rng(0).normal(size=(2, 16))
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    np.save(folder / "img_emb" / "img_emb_0.npy", vectors.astype(np.float32))
    columns = {"image_path": photos, "id": ["own.png", "stolen.png"], "caption": ["", ""]}
    write_table(pyarrow.table(columns), folder / "metadata" / "metadata_0.parquet")


@pytest.fixture
def make(data_file: Path, tmp_path: Path) -> Callable[[str], Source]:
    """Makes a source in the folder "set"; the photo of someone else is in "private"."""
    passport = tmp_path / "private" / "passport.png"
    passport.parent.mkdir()
    shutil.copyfile(data_file.parent / "photo-1.png", passport)
    (tmp_path / "empty").mkdir()
    return lambda way: Source(way, tmp_path / "set", passport, data_file.parent / "photo-0.png")


async def shown(client: httpx.AsyncClient, *ids: str) -> list[int]:
    return [(await client.get(f"/v1/images/{each}")).status_code for each in ids]


@pytest.mark.parametrize("way", WAYS)
async def test_a_root_keeps_other_peoples_pictures_out_and_without_one_they_are_warned_of(
    way: str,
    make: Callable[[str], Source],
    tiny_checkpoint: Path,
    service: Service,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
) -> None:
    source, index, root = make(way), tmp_path / "index", tmp_path / "set"
    result = source.build(tiny_checkpoint, index, "--photos-root", root)
    assert result.stdout.splitlines()[-1].endswith("generation 1, 1 images, 1 skipped")
    reason = "the photo's file lies outside of the folder to which photos are restricted"
    assert f"skipped stolen.png: {reason}\n" in result.stderr
    assert "warning: photos outside" not in result.stderr
    async with service(index=index) as client:
        assert await shown(client, "own.png", "stolen.png") == [200, 404]
    none = ["--photos-root", tmp_path / "empty"]
    said = source.build(tiny_checkpoint, tmp_path / "none", *none, code=2).stderr
    assert "expected at least one item, got none; 2 skipped" in said

    result = source.build(tiny_checkpoint, index, "--replace")
    assert "generation 2, 2 images\n" in result.stdout
    assert f"warning: photos outside of {root}: 1 (1 {WAYS[way]}): " in result.stderr
    async with service(index=index) as client:
        assert await shown(client, "stolen.png") == [200]
    async with service(index=index, photos_root=root) as client:
        with caplog.at_level(logging.WARNING, "aladin_service.photos"):
            answer = await client.get("/v1/images/stolen.png")
        assert answer.status_code == 404 and str(tmp_path) not in answer.text
        assert await shown(client, "own.png", "stolen.png?size=16") == [200, 404]
    assert "photo of item 'stolen.png' is outside" in caplog.text


async def test_evidence_is_not_drawn_on_what_may_not_be_shown(
    make: Callable[[str], Source], tiny_checkpoint: Path, service: Service, tmp_path: Path
) -> None:
    index, drawn = tmp_path / "index", list[bytes]()
    make("dots").build(tiny_checkpoint, index)
    for root in (None, tmp_path / "private", tmp_path / "set"):
        async with service(index=index, photos_root=root) as client:
            asked = {"text": "a red dog", "id": "stolen.png"}
            answer = await client.get("/v1/explain.png", params=asked)
        drawn.append(answer.content if answer.status_code == 200 else b"")
    assert drawn[0] == drawn[1] != b""
    assert drawn[2] != drawn[0]


async def test_photos_that_were_uploaded_are_always_shown(
    data_file: Path, index: Path, service: Service, tmp_path: Path
) -> None:
    (tmp_path / "empty").mkdir()
    async with service(index=index, photos_root=tmp_path / "empty") as client:
        with (data_file.parent / "photo-0.png").open("rb") as photo:
            form, files = {"id": "mine"}, {"image": photo}
            answer = await client.post("/v1/items/images", data=form, files=files)
        assert answer.status_code == 201, answer.text
        assert await shown(client, "mine", "plain") == [200, 404]


def test_photos_that_are_added_are_looked_at_too(
    make: Callable[[str], Source], index: Path, tmp_path: Path
) -> None:
    add = ["index", "add", index, "--images", make("absolute").path]
    result = aladin(*add, "--photos-root", tmp_path / "set")
    assert "1 added, 0 replaced, 0 already there, 1 skipped" in result.stdout
    assert "skipped stolen.png: " in result.stderr
    result = aladin(*add, "--on-duplicate", "skip")
    assert "1 added, 0 replaced, 1 already there, 0 skipped" in result.stdout
    assert result.stderr.count("warning: photos outside of") == 1


@pytest.mark.parametrize("way", ["linked line", "linked file"])
def test_a_source_that_stays_inside_of_its_folder_is_not_warned_of(
    way: str, data_file: Path, tiny_checkpoint: Path, tmp_path: Path
) -> None:
    inside, photo = tmp_path / "set" / "own.png", data_file.parent / "photo-0.png"
    source = Source(way, tmp_path / "set", inside, photo)
    result = source.build(tiny_checkpoint, tmp_path / "index")
    assert "2 images" in result.stdout
    assert "warning: photos outside" not in result.stderr


def test_a_service_without_its_root_does_not_start(index_folder: Path, tmp_path: Path) -> None:
    patched = {"ALADIN_PHOTOS_ROOT": str(tmp_path / "gone")}
    result = CliRunner().invoke(app, ["serve", str(index_folder), "--port", "0"], env=patched)
    assert result.exit_code == 2
    assert "photos_root: expected a folder, got" in result.stderr

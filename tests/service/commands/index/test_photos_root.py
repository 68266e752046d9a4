"""Photos outside of a root are neither taken nor shown; without one they are warned of."""

from __future__ import annotations

import json
import logging
import shutil
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest
from typer.testing import CliRunner, Result

from aladin_service.cli import app

Service = Callable[..., AbstractAsyncContextManager[httpx.AsyncClient]]

WAYS = ["dots", "absolute", "linked line", "linked file", "import"]


def aladin(*words: object, code: int = 0) -> Result:
    result = CliRunner().invoke(app, [str(word) for word in words])
    assert result.exit_code == code, result.output
    return result


@pytest.fixture
def passport(data_file: Path, tmp_path: Path) -> Path:
    """A picture that belongs to no data set."""
    path = tmp_path / "private" / "passport.png"
    path.parent.mkdir()
    shutil.copyfile(data_file.parent / "photo-1.png", path)
    return path


def write_source(way: str, folder: Path, passport: Path, photo: Path) -> Path:
    """Write a data set of a photo of its own, own.png, and one of someone else's, stolen.png."""
    folder.mkdir()
    shutil.copyfile(photo, folder / "own.png")
    if way == "import":
        write_encodings(folder, [str(folder / "own.png"), str(passport)])
        return folder
    if way == "linked file":
        (folder / "stolen.png").symlink_to(passport)
        return folder
    name = {"dots": "../private/passport.png", "absolute": str(passport)}.get(way, "link.png")
    if way == "linked line":
        (folder / name).symlink_to(passport)
    lines: list[dict[str, Any]] = [
        {"id": "own.png", "image": "own.png"},
        {"id": "stolen.png", "image": name},
    ]
    file = folder / "data.jsonl"
    file.write_text("".join(json.dumps(line | {"captions": []}) + "\n" for line in lines))
    return file


def write_encodings(folder: Path, photos: list[str]) -> None:
    """Write what clip-retrieval leaves of two photos."""
    import pyarrow
    from pyarrow.parquet import write_table

    for name in ("img_emb", "metadata"):
        (folder / name).mkdir()
    vectors = np.random.default_rng(0).normal(size=(2, 16))
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    np.save(folder / "img_emb" / "img_emb_0.npy", vectors.astype(np.float32))
    columns = {"image_path": photos, "id": ["own.png", "stolen.png"], "caption": ["", ""]}
    write_table(pyarrow.table(columns), folder / "metadata" / "metadata_0.parquet")


def build(way: str, source: Path, model: Path, index: Path, *options: object) -> Result:
    if way == "import":
        words: list[object] = ["import", source, "--model", model]
    else:
        words = ["build", "--images", source, "--model", model]
    return aladin("index", *words, "--out", index, *options)


async def status(client: httpx.AsyncClient, item_id: str) -> int:
    """Of the answer to a request for a photo."""
    return (await client.get(f"/v1/images/{item_id}")).status_code


@pytest.mark.anyio
@pytest.mark.parametrize("way", WAYS)
async def test_a_root_keeps_other_peoples_pictures_out(
    way: str,
    passport: Path,
    data_file: Path,
    tiny_checkpoint: Path,
    service: Service,
    tmp_path: Path,
) -> None:
    source = write_source(way, tmp_path / "set", passport, data_file.parent / "photo-0.png")
    index = tmp_path / "index"
    result = build(way, source, tiny_checkpoint, index, "--photos-root", tmp_path / "set")
    assert result.stdout.splitlines()[-1].endswith("generation 1, 1 images, 1 skipped")
    reason = "the photo's file lies outside of the folder to which photos are restricted"
    assert f"skipped stolen.png: {reason}\n" in result.stderr
    assert "warning: photos outside" not in result.stderr
    async with service(index=index) as client:
        assert await status(client, "own.png") == 200
        assert await status(client, "stolen.png") == 404


@pytest.mark.anyio
@pytest.mark.parametrize("way", WAYS)
async def test_without_a_root_they_are_warned_of_and_shown_unless_the_service_has_one(
    way: str,
    passport: Path,
    data_file: Path,
    tiny_checkpoint: Path,
    service: Service,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
) -> None:
    source = write_source(way, tmp_path / "set", passport, data_file.parent / "photo-0.png")
    index = tmp_path / "index"
    result = build(way, source, tiny_checkpoint, index)
    assert "generation 1, 2 images\n" in result.stdout
    by = {"dots": "by '..'", "absolute": "by an absolute path", "import": "by an absolute path"}
    expected = f"warning: photos outside of {tmp_path / 'set'}: 1 (1 {by.get(way, 'by a link')}): "
    assert expected in result.stderr
    async with service(index=index) as client:
        assert await status(client, "stolen.png") == 200
    async with service(index=index, photos_root=tmp_path / "set") as client:
        assert await status(client, "own.png") == 200
        with caplog.at_level(logging.WARNING, "aladin_service.photos"):
            answer = await client.get("/v1/images/stolen.png")
        assert answer.status_code == 404
        assert str(tmp_path) not in answer.text
        assert (await client.get("/v1/images/stolen.png", params={"size": 16})).status_code == 404
    assert "photo of item 'stolen.png' is outside" in caplog.text


@pytest.mark.anyio
async def test_evidence_is_not_drawn_on_what_may_not_be_shown(
    passport: Path, data_file: Path, tiny_checkpoint: Path, service: Service, tmp_path: Path
) -> None:
    source = write_source("dots", tmp_path / "set", passport, data_file.parent / "photo-0.png")
    index = tmp_path / "index"
    build("dots", source, tiny_checkpoint, index)
    asked = {"text": "a red dog", "id": "stolen.png"}
    drawn: list[bytes] = []
    for root in (None, tmp_path / "private", tmp_path / "set"):
        async with service(index=index, photos_root=root) as client:
            answer = await client.get("/v1/explain.png", params=asked)
        drawn.append(answer.content if answer.status_code == 200 else b"")
    assert drawn[0] == drawn[1] != b""
    assert drawn[2] != drawn[0]


@pytest.mark.anyio
async def test_photos_that_were_uploaded_are_always_shown(
    data_file: Path, index_folder: Path, service: Service, tmp_path: Path
) -> None:
    index = Path(shutil.copytree(index_folder, tmp_path / "index"))
    (tmp_path / "empty").mkdir()
    async with service(index=index, photos_root=tmp_path / "empty") as client:
        with (data_file.parent / "photo-0.png").open("rb") as photo:
            form = {"id": "mine"}
            answer = await client.post("/v1/items/images", data=form, files={"image": photo})
        assert answer.status_code == 201, answer.text
        assert await status(client, "mine") == 200
        assert await status(client, "plain") == 404


def test_photos_that_are_added_are_looked_at_too(
    passport: Path, data_file: Path, index_folder: Path, tmp_path: Path
) -> None:
    source = write_source("absolute", tmp_path / "set", passport, data_file.parent / "photo-0.png")
    index = Path(shutil.copytree(index_folder, tmp_path / "index"))
    result = aladin("index", "add", index, "--images", source, "--photos-root", tmp_path / "set")
    assert "1 added, 0 replaced, 0 already there, 1 skipped" in result.stdout
    assert "skipped stolen.png: " in result.stderr
    words = ["index", "add", index, "--images", source, "--on-duplicate", "skip"]
    result = aladin(*words)
    assert "1 added, 0 replaced, 1 already there, 0 skipped" in result.stdout
    assert result.stderr.count("warning: photos outside of") == 1
    assert repr(str(passport)) in result.stderr


def test_a_source_that_stays_inside_of_its_folder_is_not_warned_of(
    data_file: Path, tiny_checkpoint: Path, tmp_path: Path
) -> None:
    for way in ("linked line", "linked file"):
        inside = tmp_path / f"{way}" / "own.png"
        source = write_source(way, tmp_path / way, inside, data_file.parent / "photo-0.png")
        result = build(way, source, tiny_checkpoint, tmp_path / f"index of {way}")
        assert "2 images" in result.stdout
        assert "warning: photos outside" not in result.stderr


def test_a_root_without_any_photo_is_said(
    passport: Path, data_file: Path, tiny_checkpoint: Path, tmp_path: Path
) -> None:
    photo = data_file.parent / "photo-0.png"
    (tmp_path / "empty").mkdir()
    for way in ("dots", "import"):
        source = write_source(way, tmp_path / way, passport, photo)
        words: list[object] = ["import", source]
        if way != "import":
            words = ["build", "--images", source]
        words += ["--model", tiny_checkpoint, "--out", tmp_path / f"index of {way}"]
        result = aladin("index", *words, "--photos-root", tmp_path / "empty", code=2)
        assert "expected at least one item, got none; 2 skipped" in result.stderr


def test_a_service_without_its_root_does_not_start(index_folder: Path, tmp_path: Path) -> None:
    words = ["serve", index_folder, "--port", 0]
    patched = {"ALADIN_PHOTOS_ROOT": str(tmp_path / "gone")}
    result = CliRunner().invoke(app, [str(word) for word in words], env=patched)
    assert result.exit_code == 2
    assert "photos_root: expected a folder, got" in result.stderr

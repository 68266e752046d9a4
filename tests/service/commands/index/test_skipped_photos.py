"""Files that look like photos and are not read are named by what builds an index and adds to it."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from pathlib import Path

import httpx
import pytest
from typer.testing import CliRunner, Result

from aladin_service.cli import app

Service = Callable[..., AbstractAsyncContextManager[httpx.AsyncClient]]


def aladin(*words: object, code: int = 0) -> Result:
    result = CliRunner().invoke(app, [str(word) for word in words])
    assert result.exit_code == code, result.output
    return result


@pytest.fixture
def photos(data_file: Path, tmp_path: Path) -> Path:
    """Two photos beside a JPEG XL, a broken link and a name that is not UTF-8."""
    folder = tmp_path / "photos"
    folder.mkdir()
    for number in range(2):
        content = (data_file.parent / f"photo-{number}.png").read_bytes()
        (folder / f"{number}.png").write_bytes(content)
    (folder / "0.txt").write_text("a red dog")
    (folder / "iphone.jxl").write_bytes(b"x")
    (folder / "link.jpg").symlink_to("gone.jpg")
    (folder / os.fsdecode(b"caf\xe9.png")).write_bytes((folder / "0.png").read_bytes())
    return folder


@pytest.mark.anyio
async def test_a_build_counts_and_names_them(
    tiny_checkpoint: Path, photos: Path, tmp_path: Path, service: Service
) -> None:
    index = tmp_path / "index"
    words = ["index", "build", "--model", tiny_checkpoint, "--images", photos, "--texts", photos]
    result = aladin(*words, "--out", index)
    assert result.stdout.endswith("generation 1, 2 images, 1 texts, 3 skipped\n")
    named = [line for line in result.stderr.splitlines() if "skipped " in line]
    assert [line.split(":")[0] for line in named] == [
        "skipped caf\\xe9.png",
        "skipped iphone.jxl",
        "skipped link.jpg",
    ]
    facts = json.loads(aladin("index", "info", index, "--json").stdout)
    assert (facts["images"]["skipped"], facts["skipped"]["total"]) == (3, 3)
    async with service(index=index) as client:
        skipped = (await client.get("/v1/index")).json()["skipped"]
    assert skipped["total"] == 3
    (jxl,) = [group for group in skipped["reasons"] if "iphone.jxl" in group["names"]]
    assert jxl["reason"] == "JPEG XL cannot be read"
    # The same build again changes nothing, and what is new among them is noticed.
    assert "generation 1, 2 images" in aladin(*words, "--out", index, "--resume").stdout
    (photos / "later.jxl").write_bytes(b"x")
    assert "4 skipped" in aladin(*words, "--out", index, "--resume", "--replace").stdout


def test_each_part_of_a_build_names_its_own(
    tiny_checkpoint: Path, photos: Path, tmp_path: Path
) -> None:
    """One batch each: what stands before, between and behind the photos is named once."""
    found: list[str] = []
    for part in (1, 2):
        result = aladin(
            *["index", "build", "--model", tiny_checkpoint, "--images", photos],
            *["--out", tmp_path / str(part), "--part", f"{part}/2", "--batch-size", 1],
        )
        found += [line.split(":")[0] for line in result.stderr.splitlines() if "skipped " in line]
    assert sorted(found) == [
        "skipped caf\\xe9.png",
        "skipped iphone.jxl",
        "skipped link.jpg",
    ]
    merged = aladin("index", "merge", tmp_path / "1", tmp_path / "2", "--out", tmp_path / "all")
    assert "generation 1, 2 images" in merged.stdout
    facts = json.loads(aladin("index", "info", tmp_path / "all", "--json").stdout)
    assert (facts["images"]["count"], facts["images"]["skipped"]) == (2, 3)


def test_photos_are_added_like_that(index_folder: Path, photos: Path, tmp_path: Path) -> None:
    index = Path(shutil.copytree(index_folder, tmp_path / "index"))
    result = aladin("index", "add", index, "--images", photos, "--texts", photos)
    assert f"{index}: images: 2 added, 0 replaced, 0 already there, 3 skipped\n" in result.stdout
    assert f"{index}: texts: 1 added, 0 replaced, 0 already there, 0 skipped\n" in result.stdout
    assert result.stderr.count("iphone.jxl") == 1
    assert "skipped caf\\xe9.png: the file name is not UTF-8" in result.stderr


def test_a_folder_of_nothing_else_says_so(tiny_checkpoint: Path, tmp_path: Path) -> None:
    (tmp_path / "photos").mkdir()
    (tmp_path / "photos" / "a.jxl").write_bytes(b"x")
    words = ["--model", tiny_checkpoint, "--images", tmp_path / "photos", "--out", tmp_path / "i"]
    result = aladin("index", "build", *words, code=2)
    assert "holds no photo that can be read: 1 skipped, e.g. a.jxl: JPEG XL" in result.stderr

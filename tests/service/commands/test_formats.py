"""The commands take tars, parquet and CSV as they take JSONL."""

from __future__ import annotations

import csv
import io
import json
import tarfile
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Any

import httpx
import pytest
from PIL import Image
from typer.testing import CliRunner

from aladin_index.generations.reader import open_index
from aladin_service.cli import app

Service = Callable[..., AbstractAsyncContextManager[httpx.AsyncClient]]


def aladin(*words: object) -> str:
    """Run a command line that has to succeed; return its stdout."""
    result = CliRunner().invoke(app, [str(word) for word in words])
    assert result.exit_code == 0, result.stderr
    return result.stdout


def write_tars(folder: Path, lines: list[dict[str, Any]], photos: Path) -> Path:
    """Write two tars as img2dataset does: ids, splits and metadata are in the .json."""
    folder.mkdir()
    for shard in range(2):
        with tarfile.open(folder / f"{shard:05d}.tar", "w") as tar:
            for number in range(shard, len(lines), 2):
                line, key = lines[number], f"{shard:05d}{number:04d}"
                details = {"id": line["id"], "split": line["split"], "status": "success"}
                parts = {
                    "png": (photos / line["image"]).read_bytes(),
                    "txt": "\n".join(line["captions"]).encode(),
                    "json": json.dumps(details | line["metadata"]).encode(),
                }
                for suffix, content in parts.items():
                    info = tarfile.TarInfo(f"{key}.{suffix}")
                    info.size = len(content)
                    tar.addfile(info, io.BytesIO(content))
    return folder


@pytest.fixture(scope="module")
def formats(data_file: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """The photos and captions of `data_file` in other formats."""
    import pyarrow
    from pyarrow.parquet import write_table

    folder = tmp_path_factory.mktemp("formats")
    lines: list[dict[str, Any]] = [json.loads(line) for line in data_file.read_text().splitlines()]
    tars = write_tars(folder / "tars", lines, data_file.parent)
    columns = {
        "image_path": [str(data_file.parent / line["image"]) for line in lines],
        "captions": [line["captions"] for line in lines],
        "split": [line["split"] for line in lines],
        "id": [line["id"] for line in lines],
        "number": [line["metadata"]["number"] for line in lines],
        "tags": [line["metadata"]["tags"] for line in lines],
    }
    write_table(pyarrow.table(columns), folder / "data.parquet")
    with (folder / "data.csv").open("w", newline="", encoding="utf-8") as file:
        table = csv.writer(file)
        table.writerow(["filepath", "title", "split", "id", "number"])
        for line in lines:
            for caption in line["captions"]:
                photo = data_file.parent / line["image"]
                row = [photo, caption, line["split"], line["id"], line["metadata"]["number"]]
                table.writerow(row)
    return {"tars": tars, "parquet": folder / "data.parquet", "csv": folder / "data.csv"}


def test_an_evaluation_does_not_depend_on_the_format(
    tiny_checkpoint: Path, data_file: Path, formats: dict[str, Path], index_folder: Path
) -> None:
    """With the index that was built from JSONL: the ids are the same, too."""
    words = ["--split", "all", "--index", index_folder, "--json"]
    expected = json.loads(aladin("evaluate", tiny_checkpoint, data_file, *words))
    for name in ("parquet", "csv"):
        found = json.loads(aladin("evaluate", tiny_checkpoint, formats[name], *words))
        assert found["matching"] == expected["matching"], name
        assert found["two_stage"] == expected["two_stage"], name
    # Photos of the tars come in another order, which no rank depends on.
    found = json.loads(aladin("evaluate", tiny_checkpoint, formats["tars"], *words))
    assert found["two_stage"] == expected["two_stage"]


@pytest.mark.parametrize("name", ["tars", "parquet"])
def test_negatives_are_mined(
    tiny_checkpoint: Path, formats: dict[str, Path], name: str, tmp_path: Path
) -> None:
    words = ["--split", "test", "--texts", 2, "--images", 2, "--cache", tmp_path / "cache"]
    out = tmp_path / "negatives.safetensors"
    assert aladin("mine", tiny_checkpoint, formats[name], "--out", out, *words) == f"{out}\n"


@pytest.fixture(scope="module")
def indexed_tars(
    tiny_checkpoint: Path, formats: dict[str, Path], tmp_path_factory: pytest.TempPathFactory
) -> Path:
    """An index of the tars' photos and captions, built and added to by the command line."""
    out = tmp_path_factory.mktemp("tars") / "index"
    tars, words = formats["tars"], ["--model", tiny_checkpoint, "--split", "test", "--out", out]
    printed = aladin("index", "build", "--images", tars, "--texts", tars, *words)
    assert printed == f"{out}: generation 1, 5 images, 10 texts\n"
    aladin("index", "add", out, "--images", tars / "{00000..00001}.tar", "--split", "val")
    return out


def test_tars_make_the_index_that_their_photos_make(
    indexed_tars: Path, index_folder: Path, formats: dict[str, Path]
) -> None:
    with open_index(indexed_tars) as found, open_index(index_folder) as expected:
        collection, other = found.collection("images"), expected.collection("images")
        rows, others = dict(collection.items.ids()), dict(other.items.ids())
        assert rows.keys() == others.keys()
        for item_id, row in rows.items():
            item = collection.items.by_rows([row])[0]
            same = other.items.by_rows([others[item_id]])[0]
            assert (item.text, item.metadata, item.size_px) == (
                same.text,
                same.metadata,
                same.size_px,
            )
            assert item.path is not None
            assert Path(item.path).parent == formats["tars"]
            difference = collection.embedding(row) - other.embedding(others[item_id])
            assert abs(difference).max() < 1e-5


@pytest.mark.anyio
async def test_photos_inside_of_tars_are_served(
    indexed_tars: Path, service: Service, data_file: Path
) -> None:
    async with service(indexed_tars) as client:
        for name, item_id in (("photo-2.png", "plain"), ("photo-5.png", "../street")):
            quoted = item_id.replace("/", "%2F").replace(".", "%2E")
            whole = await client.get(f"/v1/images/{quoted}")
            assert whole.status_code == 200
            assert whole.content == (data_file.parent / name).read_bytes()
            assert whole.headers["content-type"] == "image/png"
            small = await client.get(f"/v1/images/{quoted}", params={"size": 16})
            with Image.open(io.BytesIO(small.content)) as picture:
                assert (picture.format, max(picture.size)) == ("JPEG", 16)


@pytest.mark.anyio
async def test_a_photo_of_a_tar_that_has_changed_is_gone(
    tiny_checkpoint: Path, service: Service, formats: dict[str, Path], tmp_path: Path
) -> None:
    tar = tmp_path / "a.tar"
    tar.write_bytes((formats["tars"] / "00000.tar").read_bytes())
    out = tmp_path / "index"
    aladin("index", "build", "--images", tar, "--model", tiny_checkpoint, "--out", out)
    tar.write_bytes(b"\0" * 100)
    async with service(out) as client:
        for params in ({}, {"size": 16}):
            answer = await client.get("/v1/images/plain", params=params)
            assert answer.status_code == 404
            assert str(tmp_path) not in answer.text


def test_a_broken_source_is_the_users_mistake_in_one_line(
    tiny_checkpoint: Path, formats: dict[str, Path], tmp_path: Path
) -> None:
    tar = tmp_path / "cut.tar"
    tar.write_bytes((formats["tars"] / "00000.tar").read_bytes()[:4000])
    words = ["index", "build", "--model", tiny_checkpoint, "--images", tar, "--out", tmp_path / "i"]
    result = CliRunner().invoke(app, [str(word) for word in words])
    assert result.exit_code == 2
    assert f"{tar}: cut short" in result.stderr
    assert "Traceback" not in result.stderr

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

from aladin_index.generations.reader import open_index
from tests.service.commands.conftest import aladin, aladin_json

Service = Callable[..., AbstractAsyncContextManager[httpx.AsyncClient]]


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


def test_an_evaluation_and_its_negatives_do_not_depend_on_the_format(
    tiny_checkpoint: Path,
    data_file: Path,
    formats: dict[str, Path],
    index_folder: Path,
    tmp_path: Path,
) -> None:
    """With the index that was built from JSONL: the ids are the same, too."""
    words = ["--split", "all", "--index", index_folder]
    expected = aladin_json("evaluate", tiny_checkpoint, data_file, *words)
    mine = ["--split", "test", "--texts", 2, "--images", 2, "--cache", tmp_path / "cache"]
    for name, file in formats.items():
        found = aladin_json("evaluate", tiny_checkpoint, file, *words)
        assert found["two_stage"] == expected["two_stage"], name
        # Photos of the tars come in another order.
        assert found["matching"] == expected["matching"] or name == "tars"
        out = tmp_path / name
        assert aladin("mine", tiny_checkpoint, file, "--out", out, *mine).stdout == f"{out}\n"


@pytest.fixture(scope="module")
def indexed_tars(
    tiny_checkpoint: Path, formats: dict[str, Path], tmp_path_factory: pytest.TempPathFactory
) -> Path:
    """An index of the tars' photos and captions, built and added to by the command line."""
    out = tmp_path_factory.mktemp("tars") / "index"
    tars, words = formats["tars"], ["--model", tiny_checkpoint, "--split", "test", "--out", out]
    built = aladin("index", "build", "--images", tars, "--texts", tars, *words)
    assert built.stdout == f"{out}: generation 1, 5 images, 10 texts\n"
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
            item, same = collection.items.by_rows([row])[0], other.items.by_id(item_id)
            assert same is not None and item.path is not None
            assert (item.text, item.metadata) == (same.text, same.metadata)
            assert item.size_px == same.size_px
            assert Path(item.path).parent == formats["tars"]
            difference = collection.embedding(row) - other.embedding(others[item_id])
            assert abs(difference).max() < 1e-5


@pytest.mark.anyio
async def test_photos_inside_of_tars_are_served(
    indexed_tars: Path, service: Service, data_file: Path
) -> None:
    async with service(indexed_tars) as client:
        for name, quoted in (("photo-2.png", "plain"), ("photo-5.png", "%2E%2E%2Fstreet")):
            whole = await client.get(f"/v1/images/{quoted}")
            assert (whole.status_code, whole.headers["content-type"]) == (200, "image/png")
            assert whole.content == (data_file.parent / name).read_bytes()
            small = await client.get(f"/v1/images/{quoted}", params={"size": 16})
            with Image.open(io.BytesIO(small.content)) as picture:
                assert (picture.format, max(picture.size)) == ("JPEG", 16)


@pytest.mark.anyio
async def test_a_photo_of_a_tar_that_has_changed_is_gone(
    tiny_checkpoint: Path, service: Service, formats: dict[str, Path], tmp_path: Path
) -> None:
    tar, out = tmp_path / "a.tar", tmp_path / "index"
    tar.write_bytes((formats["tars"] / "00000.tar").read_bytes())
    aladin("index", "build", "--images", tar, "--model", tiny_checkpoint, "--out", out)
    tar.write_bytes(b"\0" * 100)
    async with service(out) as client:
        for params in ({}, {"size": 16}):
            answer = await client.get("/v1/images/plain", params=params)
            assert answer.status_code == 404
            assert str(tmp_path) not in answer.text


def test_a_tar_that_is_cut_short_is_refused(
    tiny_checkpoint: Path, formats: dict[str, Path], tmp_path: Path
) -> None:
    tar, new = tmp_path / "cut.tar", tmp_path / "new"
    tar.write_bytes((formats["tars"] / "00000.tar").read_bytes()[:4000])
    words = ["index", "build", "--model", tiny_checkpoint, "--images", tar, "--out", new]
    assert f"{tar}: cut short" in aladin(*words, code=2).stderr

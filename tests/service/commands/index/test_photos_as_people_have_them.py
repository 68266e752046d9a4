"""Folders of photos as people have them: every file is indexed, named with a reason, or counted."""

from __future__ import annotations

import base64
import io
import json
import os
import random
import shutil
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager, closing
from pathlib import Path
from typing import Any

import httpx
import pytest
from PIL import ExifTags, Image
from typer.testing import Result

from aladin_index.open import open_backend
from aladin_network.photos.formats import HAS_AVIF, HAS_RAW
from tests.aladin.pictures import encode
from tests.aladin.raw_files import make_dng
from tests.service.commands.conftest import aladin, aladin_json
from tests.service.conftest import make_photo

Service = Callable[..., AbstractAsyncContextManager[httpx.AsyncClient]]
PLACE = {"lat": 43.5, "lon": -10.25}


def skipped(result: Result) -> dict[str, str]:
    lines = [line for line in result.stderr.splitlines() if line.startswith("skipped ")]
    return dict(line.removeprefix("skipped ").split(": ", 1) for line in lines)


def metadata_of(index: Path) -> dict[str, dict[str, Any]]:
    """Metadata of all live photos, by id."""
    with closing(open_backend(index)) as opened:
        items = opened.collection("images").items
        rows = [row for _, row in items.ids()]
        return {item.id: item.metadata for item in items.by_rows(rows)}


def exif_of(taken: str, *, gps: bool = False) -> bytes:
    exif = Image.Exif()
    exif[ExifTags.Base.Make], exif[ExifTags.Base.Model] = "Acme", "Phone 3"
    exif.get_ifd(ExifTags.IFD.Exif)[ExifTags.Base.DateTimeOriginal] = taken
    if gps:
        exif.get_ifd(ExifTags.IFD.GPSInfo).update(
            {1: "N", 2: (43.0, 30.0, 0.0), 3: "W", 4: (10.0, 15.0, 0.0)}
        )
    return exif.tobytes()


@pytest.fixture
def pictures(tmp_path: Path) -> Path:
    """Good photos, photos of unusual kinds, and what else lies in such a folder."""
    folder, good = tmp_path / "Pictures", encode(make_photo(23))
    placed = exif_of("2023:01:02 03:04:05", gps=True)
    files: dict[str, bytes] = {
        f"2024/{number:02d}.jpg": encode(make_photo(number), exif=exif_of("2024:07:01 12:00:00"))
        for number in range(3)
    }
    files |= {
        "iphone.heic": encode(make_photo(20), "HEIF", exif=placed),
        "android.avif": encode(make_photo(21), "AVIF", exif=exif_of("2022:01:02 03:04:05")),
        "camera.dng": make_dng(encode(make_photo(22, (64, 48)))),
        "bare.dng": make_dng(None),
        "large.jpg": encode(Image.new("L", (12000, 9000), 90)),
        "large.png": encode(Image.new("1", (12000, 9000)), "PNG"),
        os.fsdecode(b"caf\xe9.jpg"): good,
        "new\nline.jpg": good,
        "corrupt.jpg": good[: len(good) // 2],
        "empty.jpg": b"",
        "text.jpg": b"no photo",
        "noise.dng": random.Random(0).randbytes(5000),
        "backup.tar": b"x" * 600,
        "2024/00.txt": b"\xff\xfe\xff",
        "2024/01.json": b"[1, 2",
        "2024/beach/empty.txt": b"",
    }
    files |= {f"{name}/thumb.jpg": good for name in ("@eaDir", ".thumbnails", "Screenshots")}
    files |= dict.fromkeys(("scan.jxl", "film.mp4", "clip.MP4", "letter.pdf", "Thumbs.db"), b"x")
    for name, content in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(content)
    for name, target in (("loop", "."), ("self.jpg", "self.jpg"), ("gone.jpg", "nowhere.jpg")):
        (folder / name).symlink_to(target)
    return folder


REASONS = {
    "bare.dng": "camera RAW without a preview",
    "caf\\xe9.jpg": "the file name is not UTF-8",
    "new\\nline.jpg": "the file name has a line break",
    "corrupt.jpg": "damaged or cut short",
    "empty.jpg": "0 bytes",
    "text.jpg": "not an image of a known format",
    "noise.dng": "not an image of a known format",
    "large.png": "12000 x 9000 pixels, limit 64000000",
    "loop": "a link to a folder",
    "self.jpg": "a broken link",
    "gone.jpg": "a broken link",
    "backup.tar": "a tar among photos",
    "2024/00.txt": "not used for its photo",
    "2024/01.json": "not used for its photo",
    "scan.jxl": "JPEG XL",
}


@pytest.mark.skipif(
    not (HAS_AVIF and HAS_RAW), reason="needs the extra raw (rawpy), and a Pillow with AVIF"
)
@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("command", ["build", "add"])
def test_everything_is_indexed_or_named_with_its_reason(
    tiny_checkpoint: Path, pictures: Path, photos: Path, tmp_path: Path, command: str
) -> None:
    index = tmp_path / "new"
    model, options = ["--model", tiny_checkpoint, "--out", index], ["--exclude", "Screenshots"]
    if command == "build":
        result = aladin("index", "build", *model, "--images", pictures, *options)
        assert f"generation 1, 7 images, {len(REASONS)} skipped" in result.stdout
    else:
        aladin("index", "build", *model, "--images", photos)
        result = aladin("index", "add", index, "--images", pictures, *options)
        assert f"images: 7 added, 0 replaced, 0 already there, {len(REASONS)} skip" in result.stdout
    found = skipped(result)
    assert found.keys() == REASONS.keys()
    for name, reason in REASONS.items():
        assert reason in found[name] and str(pictures) not in found[name]
    assert (
        "not looked at: 4 not photos (2 '.mp4', 1 '.pdf', 1 '.txt'); 3 hidden, or of other programs"
        " (1 '.thumbnails', 1 '@eaDir', 1 'Thumbs.db'); 1 excluded (1 'Screenshots')\n"
    ) in result.stderr
    assert "Warning" not in result.stderr
    clock = {"taken_at": "2024-07-01T12:00:00", "date_source": "exif"}
    phone = {"camera": "Acme Phone 3", **clock}
    metadata = metadata_of(index)
    for name in ("large.jpg", *(["a.png"] if command == "add" else [])):
        assert metadata.pop(name).keys() == {"taken_at", "utc_offset", "date_source"}
    assert metadata == {
        **{f"2024/{number:02d}.jpg": {"folder": ["2024"], **phone} for number in range(3)},
        "iphone.heic": phone | {"taken_at": "2023-01-02T03:04:05"} | PLACE,
        "android.avif": phone | {"taken_at": "2022-01-02T03:04:05"},
        "camera.dng": clock | {"taken_at": "2021-05-06T07:08:09", "camera": "Acme X1"},
    }
    with closing(open_backend(index)) as opened:
        large = opened.collection("images").items.by_id("large.jpg")
    assert large is not None and large.size_px == (12000, 9000)


def test_what_is_skipped_is_counted_by_a_build_by_parts_and_by_a_merge(
    tiny_checkpoint: Path, photos: Path, tmp_path: Path
) -> None:
    """One batch each: what stands before, between and behind the photos is named once."""
    for name in ("0.png", "1.png"):
        shutil.copy(photos / "a.png", photos / name)
    (photos / "a.png").unlink()
    (photos / "iphone.jxl").write_bytes(b"x")
    (photos / "link.jpg").symlink_to("gone.jpg")
    shutil.copy(photos / "0.png", photos / os.fsdecode(b"caf\xe9.png"))
    names = ["caf\\xe9.png", "iphone.jxl", "link.jpg"]
    build = ["index", "build", "--model", tiny_checkpoint, "--images", photos, "--out"]
    whole = aladin(*build, tmp_path / "whole")
    assert whole.stdout.endswith("generation 1, 2 images, 3 skipped\n")
    assert list(skipped(whole)) == names
    # The same build again changes nothing, and what is new among them is noticed.
    assert "generation 1, 2 images" in aladin(*build, tmp_path / "whole", "--resume").stdout
    parts = [
        aladin(*build, tmp_path / str(part), "--part", f"{part}/2", "--batch-size", 1)
        for part in (1, 2)
    ]
    assert sorted(name for part in parts for name in skipped(part)) == names
    aladin("index", "merge", tmp_path / "1", tmp_path / "2", "--out", tmp_path / "all")
    for index in (tmp_path / "whole", tmp_path / "all"):
        facts = aladin_json("index", "info", index)
        assert (facts["images"]["count"], facts["images"]["skipped"]) == (2, 3)
        assert facts["skipped"]["total"] == 3
        [jxl] = [each for each in facts["skipped"]["reasons"] if "iphone.jxl" in each["names"]]
        assert jxl["reason"] == "JPEG XL cannot be read"
    (photos / "later.jxl").write_bytes(b"x")
    again = aladin(*build, tmp_path / "whole", "--resume", "--replace")
    assert "4 skipped" in again.stdout


def test_fields_of_the_user_take_precedence_and_exif_can_be_switched_off(
    tiny_checkpoint: Path, tmp_path: Path
) -> None:
    folder, own = tmp_path / "photos", {"lat": 1.5, "city": "Pisa"}
    folder.mkdir()
    exif = exif_of("2024:07:01 12:00:00", gps=True)
    (folder / "a.jpg").write_bytes(encode(make_photo(1), exif=exif))
    (folder / "a.json").write_text(json.dumps(own))
    build = ["index", "build", "--model", tiny_checkpoint, "--images", folder, "--out"]
    aladin(*build, tmp_path / "with")
    aladin(*build, tmp_path / "without", "--no-exif")
    assert metadata_of(tmp_path / "without") == {"a.jpg": own}
    # Not the photo's longitude beside another latitude.
    taken = {"taken_at": "2024-07-01T12:00:00", "date_source": "exif"}
    camera = {"camera": "Acme Phone 3", **taken}
    assert metadata_of(tmp_path / "with") == {"a.jpg": camera | own}
    added = ["index", "add", tmp_path / "without", "--images", folder, "--on-duplicate", "replace"]
    for words, expected in ((["--no-exif"], own), ([], camera | own)):
        aladin(*added, *words)
        assert metadata_of(tmp_path / "without") == {"a.jpg": expected}


def test_large_photos_are_taken_by_an_option(tiny_checkpoint: Path, tmp_path: Path) -> None:
    folder, small = tmp_path / "photos", tmp_path / "small"
    folder.mkdir()
    (folder / "a.png").write_bytes(encode(make_photo(1, (300, 200)), "PNG"))
    (folder / "b.jpg").write_bytes(encode(make_photo(2, (300, 200))))
    build = ["index", "build", "--model", tiny_checkpoint, "--images", folder, "--out"]
    result = aladin(*build, small, "--max-pixels", 59_999)
    assert skipped(result) == {"a.png": "300 x 200 pixels, limit 59999"}
    assert metadata_of(small).keys() == {"b.jpg"}
    added = aladin("index", "add", small, "--images", folder / "a.png", "--max-pixels", 60_000)
    assert "1 added" in added.stdout


def test_single_photos_and_patterns_are_dated_filtered_and_sorted(
    tiny_checkpoint: Path, tmp_path: Path
) -> None:
    folder, index, days = tmp_path / "photos", tmp_path / "index", [3, 1, 4, 2]
    folder.mkdir()
    for number, day in enumerate(days):
        exif = exif_of(f"2024:07:{day:02d} 12:00:00")
        (folder / f"{day}.jpg").write_bytes(encode(make_photo(number), exif=exif))
    (folder / "undated.jpg").write_bytes(encode(make_photo(9)))
    (folder / "1.txt").write_text("a red dog\n")
    build = ["index", "build", "--model", tiny_checkpoint, "--out", index, "--images"]
    aladin(*build, folder / "1.jpg")
    aladin("index", "add", index, "--images", folder / "[2-9u]*.jpg")
    day = '{"taken_at": "2024-07-01T12:00:00"}'
    first = aladin_json("search", index, "a red dog", "--filter", day)
    assert [(hit["id"], hit["text"]) for hit in first["hits"]] == [("1.jpg", "a red dog")]

    def ids(*options: object) -> list[str]:
        return [hit["id"] for hit in aladin_json("search", index, "a dog", *options)["hits"]]

    dated = [f"{day}.jpg" for day in sorted(days)]
    assert ids("--sort", "taken_at") == [*dated, "undated.jpg"]
    assert ids("--sort=-taken_at") == [*reversed(dated), "undated.jpg"]
    # The best two by relevance, in their order by date.
    assert ids("-k", 2, "--sort", "taken_at") == sorted(ids("-k", 2))
    between = json.dumps({"taken_at": {"gte": "2024-07-02", "lt": "2024-07-04"}})
    assert ids("--filter", between, "--sort=-taken_at") == ["3.jpg", "2.jpg"]
    assert ids("--sort", "takenat") == ids()
    said = aladin("search", index, "a dog", "--sort", "takenat").stdout.splitlines()
    assert said[-1].startswith("no item has a field 'takenat' to sort by")


@pytest.mark.anyio
@pytest.mark.parametrize("allowed", [True, False])
async def test_uploads_tell_it_too(
    service: Service, index: Path, monkeypatch: pytest.MonkeyPatch, allowed: bool
) -> None:
    exif = exif_of("2020:02:03 04:05:06", gps=True)
    image = base64.b64encode(encode(make_photo(70), exif=exif)).decode()
    date = {"taken_at": "2020-02-03T04:05:06", "date_source": "exif"}
    told = date | PLACE if allowed else {}
    monkeypatch.setenv("ALADIN_EXIF", str(allowed).lower())
    async with service(index=index) as client:
        body = {"id": "new", "image": image, "metadata": {"camera": "mine"}}
        answer = await client.post("/v1/items/images", json=body)
        assert answer.status_code == 201, answer.text
        item = (await client.get("/v1/items/images/new")).json()
        body = {"text": "a dog", "sort": "-taken_at", "k": 50}
        hits = (await client.post("/v1/search/images", json=body)).json()["hits"]
    assert item["metadata"] == told | {"camera": "mine"}
    assert not allowed or hits[0]["id"] == "new"
    assert sorted(hit["rank"] for hit in hits) == list(range(1, len(hits) + 1))


@pytest.mark.anyio
async def test_a_heic_is_searched_with_added_and_shown(service: Service, index: Path) -> None:
    image = base64.b64encode(encode(make_photo(71), "HEIF")).decode()
    async with service(index=index) as client:
        answer = await client.post("/v1/items/images", json={"id": "heic", "image": image})
        assert answer.status_code == 201, answer.text
        found = await client.post("/v1/search/images", json={"image": image, "k": 1})
        assert [hit["id"] for hit in found.json()["hits"]] == ["heic"]
        for query, side in (("", 48), ("?size=32", 32)):
            shown = await client.get(f"/v1/images/heic{query}")
            assert shown.headers["content-type"] == "image/jpeg"
            assert max(Image.open(io.BytesIO(shown.content)).size) == side

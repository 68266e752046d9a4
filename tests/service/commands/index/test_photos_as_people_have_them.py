"""Folders of photos as people have them: every file is indexed, named with a reason, or counted."""

from __future__ import annotations

import io
import json
import os
import random
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager, closing
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest
from PIL import ExifTags, Image
from typer.testing import CliRunner, Result

from aladin_index.open import open_backend
from aladin_network.photos.formats import HAS_AVIF, HAS_HEIF, HAS_RAW
from aladin_service.cli import app
from tests.aladin.raw_files import make_dng

Service = Callable[..., AbstractAsyncContextManager[httpx.AsyncClient]]
needs_all = pytest.mark.skipif(
    not (HAS_AVIF and HAS_HEIF and HAS_RAW),
    reason="needs the extras heic (pillow-heif) and raw (rawpy), and a Pillow with AVIF",
)


def aladin(*words: object, code: int = 0) -> Result:
    result = CliRunner().invoke(app, [str(word) for word in words])
    assert result.exit_code == code, result.output
    return result


def skipped(result: Result) -> dict[str, str]:
    """Reasons by the names on stderr."""
    lines = [line for line in result.stderr.splitlines() if line.startswith("skipped ")]
    pairs = [line.removeprefix("skipped ").split(": ", 1) for line in lines]
    return dict(pairs)


def metadata_of(index: Path) -> dict[str, dict[str, Any]]:
    """Metadata of all photos, by id."""
    with closing(open_backend(index)) as opened:
        collection = opened.collection("images")
        return {
            item.id: item.metadata for item in collection.items.by_rows(range(collection.count))
        }


def added_metadata(index: Path, item_id: str) -> dict[str, Any]:
    """Metadata of a photo that may have been replaced."""
    with closing(open_backend(index)) as opened:
        item = opened.collection("images").items.by_id(item_id)
        assert item is not None
        return item.metadata


def photo(seed: int, size: tuple[int, int] = (48, 40)) -> Image.Image:
    colours = np.random.default_rng(seed).integers(0, 256, (5, 6, 3), dtype=np.uint8)
    return Image.fromarray(colours).resize(size, Image.Resampling.NEAREST)


def file_of(picture: Image.Image, kind: str = "JPEG", **options: object) -> bytes:
    if kind == "HEIF":
        from pillow_heif import register_heif_opener

        register_heif_opener()
    target = io.BytesIO()
    picture.save(target, kind, **options)
    return target.getvalue()


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
    """Twenty good photos, photos of unusual kinds, and what else lies in such a folder."""
    folder = tmp_path / "Pictures"
    for name in ("2024/beach", "@eaDir", ".thumbnails", "Screenshots"):
        (folder / name).mkdir(parents=True)
    for number in range(20):
        exif = exif_of(f"2024:07:{number + 1:02d} 12:00:00", gps=number == 0)
        (folder / "2024" / f"{number:02d}.jpg").write_bytes(file_of(photo(number), exif=exif))
    (folder / "iphone.heic").write_bytes(
        file_of(photo(20), "HEIF", exif=exif_of("2023:01:02 03:04:05", gps=True))
    )
    (folder / "android.avif").write_bytes(
        file_of(photo(21), "AVIF", exif=exif_of("2022:01:02 03:04:05"))
    )
    (folder / "camera.dng").write_bytes(make_dng(file_of(photo(22, (64, 48)))))
    (folder / "bare.dng").write_bytes(make_dng(None))
    (folder / "large.jpg").write_bytes(file_of(Image.new("L", (12000, 9000), 90)))
    (folder / "large.png").write_bytes(file_of(Image.new("1", (12000, 9000)), "PNG"))
    good = file_of(photo(23))
    (folder / os.fsdecode(b"caf\xe9.jpg")).write_bytes(good)
    (folder / "new\nline.jpg").write_bytes(good)
    (folder / "corrupt.jpg").write_bytes(good[: len(good) // 2])
    (folder / "empty.jpg").write_bytes(b"")
    (folder / "text.jpg").write_text("no photo")
    (folder / "noise.dng").write_bytes(random.Random(0).randbytes(5000))
    (folder / "loop").symlink_to(".")
    (folder / "self.jpg").symlink_to("self.jpg")
    (folder / "gone.jpg").symlink_to("nowhere.jpg")
    (folder / "backup.tar").write_bytes(b"x" * 600)
    (folder / "2024" / "00.txt").write_bytes(b"\xff\xfe\xff")
    (folder / "2024" / "01.json").write_text("[1, 2")
    (folder / "scan.jxl").write_bytes(b"x")
    for name in ("film.mp4", "clip.MP4", "letter.pdf", "Thumbs.db"):
        (folder / name).write_bytes(b"x")
    for name in ("@eaDir", ".thumbnails", "Screenshots"):
        (folder / name / "thumb.jpg").write_bytes(good)
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
READ = {f"2024/{number:02d}.jpg" for number in range(20)} | {
    *("iphone.heic", "android.avif", "camera.dng", "large.jpg")
}


@needs_all
@pytest.mark.filterwarnings("error")
def test_everything_is_indexed_or_named_with_its_reason(
    tiny_checkpoint: Path, pictures: Path, tmp_path: Path
) -> None:
    index = tmp_path / "index"
    result = aladin(
        *["index", "build", "--model", tiny_checkpoint, "--images", pictures, "--out", index],
        *["--exclude", "Screenshots"],
    )
    assert f"generation 1, 24 images, {len(REASONS)} skipped" in result.stdout
    found = skipped(result)
    assert found.keys() == REASONS.keys()
    for name, reason in REASONS.items():
        assert found[name].startswith(reason) or reason in found[name], found[name]
        assert str(pictures) not in found[name]
    assert (
        "not looked at: 3 not photos (2 '.mp4', 1 '.pdf'); 2 hidden, or of other programs "
        "(1 '.thumbnails', 1 '@eaDir'); 1 excluded (1 'Screenshots')\n"
    ) in result.stderr
    assert "Warning" not in result.stderr
    metadata = metadata_of(index)
    assert metadata.keys() == READ
    assert metadata["iphone.heic"] == {
        "taken_at": "2023-01-02T03:04:05",
        "camera": "Acme Phone 3",
        "lat": 43.5,
        "lon": -10.25,
    }
    assert metadata["android.avif"]["taken_at"] == "2022-01-02T03:04:05"
    assert metadata["camera.dng"] == {"taken_at": "2021-05-06T07:08:09", "camera": "Acme X1"}
    assert metadata["large.jpg"] == {}
    with closing(open_backend(index)) as opened:
        large = opened.collection("images").items.by_id("large.jpg")
        assert large is not None
        assert large.size_px == (12000, 9000)


@needs_all
def test_photos_are_added_by_the_same_rules(
    tiny_checkpoint: Path, pictures: Path, tmp_path: Path
) -> None:
    index, first = tmp_path / "index", tmp_path / "first.jpg"
    first.write_bytes(file_of(photo(50)))
    aladin("index", "build", "--model", tiny_checkpoint, "--images", first, "--out", index)
    assert metadata_of(index) == {"first.jpg": {}}
    result = aladin("index", "add", index, "--images", pictures, "--exclude", "[lS]*")
    left = REASONS.keys() - {"large.png", "loop"}
    assert f"images: 23 added, 0 replaced, 0 already there, {len(left)} skipped\n" in result.stdout
    assert skipped(result).keys() == left
    assert "5 excluded (5 '[lS]*')" in result.stderr
    assert metadata_of(index)["2024/00.jpg"]["lat"] == 43.5


def test_fields_of_the_user_take_precedence_and_exif_can_be_switched_off(
    tiny_checkpoint: Path, tmp_path: Path
) -> None:
    folder = tmp_path / "photos"
    folder.mkdir()
    (folder / "a.jpg").write_bytes(file_of(photo(1), exif=exif_of("2024:07:01 12:00:00", gps=True)))
    (folder / "a.json").write_text(json.dumps({"lat": 1.5, "city": "Pisa"}))
    build = ["index", "build", "--model", tiny_checkpoint, "--images", folder, "--out"]
    aladin(*build, tmp_path / "with")
    aladin(*build, tmp_path / "without", "--no-exif")
    own = {"lat": 1.5, "city": "Pisa"}
    assert metadata_of(tmp_path / "without") == {"a.jpg": own}
    assert metadata_of(tmp_path / "with") == {
        "a.jpg": {"taken_at": "2024-07-01T12:00:00", "camera": "Acme Phone 3", "lon": -10.25, **own}
    }
    added = ["index", "add", tmp_path / "without", "--images", folder, "--on-duplicate", "replace"]
    aladin(*added, "--no-exif")
    assert added_metadata(tmp_path / "without", "a.jpg") == own
    aladin(*added)
    assert added_metadata(tmp_path / "without", "a.jpg")["taken_at"] == "2024-07-01T12:00:00"


def test_large_photos_by_an_option(tiny_checkpoint: Path, tmp_path: Path) -> None:
    (tmp_path / "photos").mkdir()
    (tmp_path / "photos" / "a.png").write_bytes(file_of(photo(1, (300, 200)), "PNG"))
    (tmp_path / "photos" / "b.jpg").write_bytes(file_of(photo(2, (300, 200))))
    build = ["index", "build", "--model", tiny_checkpoint, "--images", tmp_path / "photos", "--out"]
    result = aladin(*build, tmp_path / "small", "--max-pixels", 59_999)
    assert skipped(result) == {"a.png": "300 x 200 pixels, limit 59999"}
    assert metadata_of(tmp_path / "small").keys() == {"b.jpg"}
    assert not skipped(aladin(*build, tmp_path / "large", "--max-pixels", 60_000))
    result = aladin(
        *["index", "add", tmp_path / "small", "--images", tmp_path / "photos" / "a.png"],
        *["--max-pixels", 60_000],
    )
    assert "1 added" in result.stdout


def test_a_single_photo_and_a_pattern_of_photos(tiny_checkpoint: Path, tmp_path: Path) -> None:
    for number in range(3):
        (tmp_path / f"{number}.jpg").write_bytes(file_of(photo(number)))
    (tmp_path / "1.txt").write_text("a red dog\n")
    index = tmp_path / "index"
    build = ["index", "build", "--model", tiny_checkpoint, "--out", index, "--images"]
    aladin(*build, tmp_path / "1.jpg")
    with closing(open_backend(index)) as opened:
        [item] = opened.collection("images").items.by_rows([0])
        assert (item.id, item.text) == ("1.jpg", "a red dog")
    aladin("index", "add", index, "--images", tmp_path / "[02].jpg")
    assert metadata_of(index).keys() == {"0.jpg", "1.jpg", "2.jpg"}


def test_dates_of_photos_are_filtered_and_sorted(tiny_checkpoint: Path, tmp_path: Path) -> None:
    folder, index = tmp_path / "photos", tmp_path / "index"
    folder.mkdir()
    days = [3, 1, 4, 2]
    for number, day in enumerate(days):
        exif = exif_of(f"2024:07:{day:02d} 12:00:00")
        (folder / f"{day}.jpg").write_bytes(file_of(photo(number), exif=exif))
    (folder / "undated.jpg").write_bytes(file_of(photo(9)))
    aladin("index", "build", "--model", tiny_checkpoint, "--images", folder, "--out", index)

    def search(*options: object) -> dict[str, Any]:
        return json.loads(aladin("search", index, "a dog", "--json", *options).stdout)

    def ids(*options: object) -> list[str]:
        return [hit["id"] for hit in search(*options)["hits"]]

    dated = [f"{day}.jpg" for day in sorted(days)]
    assert ids("--sort", "taken_at") == [*dated, "undated.jpg"]
    assert ids("--sort=-taken_at") == [*reversed(dated), "undated.jpg"]
    # The best two by relevance, in their order by date.
    best = ids("-k", 2)
    assert ids("-k", 2, "--sort", "taken_at") == sorted(best)
    between = json.dumps({"taken_at": {"gte": "2024-07-02", "lt": "2024-07-04"}})
    assert ids("--filter", between, "--sort=-taken_at") == ["3.jpg", "2.jpg"]
    unknown = search("--sort", "takenat")
    assert unknown["unknown_fields"] == ["takenat"]
    assert [hit["id"] for hit in unknown["hits"]] == ids()
    said = aladin("search", index, "a dog", "--sort", "takenat").stdout.splitlines()
    assert said[-1].startswith("no item has a field 'takenat' to sort by")
    assert len(said) == 2 + len(days) + 1


@pytest.mark.anyio
async def test_uploads_tell_it_too(
    service: Service, index_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import base64
    import shutil

    index = Path(shutil.copytree(index_folder, tmp_path / "index"))
    image = base64.b64encode(file_of(photo(70), exif=exif_of("2020:02:03 04:05:06", gps=True)))
    told = {
        "taken_at": "2020-02-03T04:05:06",
        "camera": "Acme Phone 3",
        "lat": 43.5,
        "lon": -10.25,
    }
    for allowed, expected in (
        (True, {**told, "camera": "mine"}),
        (False, {"camera": "mine"}),
    ):
        monkeypatch.setenv("ALADIN_EXIF", str(allowed).lower())
        async with service(index=index) as client:
            body = {"id": f"new {allowed}", "image": image.decode(), "metadata": {"camera": "mine"}}
            answer = await client.post("/v1/items/images", json=body)
            assert answer.status_code == 201, answer.text
            item = (await client.get(f"/v1/items/images/new {allowed}")).json()
            assert item["metadata"] == expected
            if allowed:
                found = await client.post(
                    "/v1/search/images", json={"text": "a dog", "sort": "-taken_at", "k": 50}
                )
                hits = found.json()["hits"]
                assert [hit["id"] for hit in hits].index("new True") == 0
                assert sorted(hit["rank"] for hit in hits) == list(range(1, len(hits) + 1))


@pytest.mark.skipif(not HAS_HEIF, reason="needs the extra heic (pillow-heif)")
@pytest.mark.anyio
async def test_a_heic_is_searched_with_added_and_shown(
    service: Service, index_folder: Path, tmp_path: Path
) -> None:
    import base64
    import shutil

    index = Path(shutil.copytree(index_folder, tmp_path / "index"))
    image = base64.b64encode(file_of(photo(71), "HEIF")).decode()
    async with service(index=index) as client:
        answer = await client.post("/v1/items/images", json={"id": "heic", "image": image})
        assert answer.status_code == 201, answer.text
        found = await client.post("/v1/search/images", json={"image": image, "k": 1})
        assert [hit["id"] for hit in found.json()["hits"]] == ["heic"]
        for query in ("", "?size=32"):
            shown = await client.get(f"/v1/images/heic{query}")
            assert shown.headers["content-type"] == "image/jpeg"
            assert max(Image.open(io.BytesIO(shown.content)).size) == (32 if query else 48)

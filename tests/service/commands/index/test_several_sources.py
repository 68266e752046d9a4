"""``aladin index build`` and ``add`` with several sources after --images and --texts."""

from __future__ import annotations

import json
from contextlib import closing
from pathlib import Path

import pytest
from PIL import Image
from typer.testing import CliRunner, Result

from aladin_index.open import open_backend
from aladin_network.types import Target
from aladin_service.cli import app
from aladin_service.commands.index.several_sources import repeat_option


def aladin(*words: object, code: int = 0) -> Result:
    result = CliRunner().invoke(app, [str(word) for word in words])
    assert result.exit_code == code, result.output
    return result


def ids(index: Path, target: Target = "images") -> list[str]:
    with closing(open_backend(index)) as opened:
        collection = opened.collection(target)
        return sorted(item.id for item in collection.items.by_rows(range(collection.count)))


@pytest.fixture
def photos(tmp_path: Path) -> Path:
    """Six photos in a folder, and one that is broken."""
    folder = tmp_path / "photos"
    folder.mkdir()
    for number in range(6):
        Image.new("RGB", (40, 40), (40 * number, 90, 200)).save(folder / f"{number}.png")
    (folder / "broken.png").write_text("no photo")
    return folder


def texts_file(folder: Path, name: str) -> Path:
    file = folder / f"{name}.jsonl"
    file.write_text(json.dumps({"id": name, "text": f"a text {name}"}) + "\n", encoding="utf-8")
    return file


@pytest.mark.parametrize(
    ("words", "needs_argument", "expected"),
    [
        ("IX --images a b", True, "IX --images a --images b"),
        ("IX --images a --images b", True, "IX --images a --images b"),
        ("--images a b IX", True, "--images a --images b IX"),
        ("--images a IX", True, "--images a IX"),
        ("--images a --texts t IX", True, "--images a --texts t IX"),
        ("--images a b --texts t u", False, "--images a --images b --texts t --texts u"),
        ("--images=a b IX --no-exif", True, "--images=a --images b --no-exif IX"),
        ("--images a b -- IX", True, "--images a --images b -- IX"),
        ("--split val IX --images a b", True, "--split val IX --images a --images b"),
        ("--no-exif IX --images a b", True, "--no-exif IX --images a --images b"),
        ("IX --images a b --split val c", True, "IX --images a --images b --split val c"),
        ("IX --images", True, "IX --images"),
    ],
)
def test_each_word_after_the_option_is_a_value_of_it(
    words: str, needs_argument: bool, expected: str
) -> None:
    found = repeat_option(words.split(), {"--no-exif"}, needs_argument=needs_argument)
    assert found == expected.split()


def test_photos_as_a_shell_writes_them(tiny_checkpoint: Path, photos: Path, tmp_path: Path) -> None:
    index = tmp_path / "index"
    files = [photos / name for name in ("0.png", "broken.png", "1.png")]
    result = aladin(
        *["index", "build", "--model", tiny_checkpoint, "--images", *files],
        *["--texts", texts_file(tmp_path, "t"), "--texts", texts_file(tmp_path, "u")],
        *["--out", index],
    )
    assert "generation 1, 2 images, 2 texts, 1 skipped" in result.stdout
    assert "skipped broken.png: " in result.stderr
    assert "outside of" not in result.stderr
    assert ids(index) == ["0.png", "1.png"]
    assert ids(index, "texts") == ["t", "u"]

    added = aladin("index", "add", index, "--images", photos / "2.png", photos / "3.png")
    assert f"{index}: images: 2 added" in added.stdout
    repeated = ["--images", photos / "4.png", "--images", photos / "5.png"]
    added = aladin("index", "add", *repeated, "--texts", texts_file(tmp_path, "v"), index)
    assert f"{index}: images: 2 added" in added.stdout
    assert f"{index}: texts: 1 added" in added.stdout


def test_folders_and_lists_one_after_another(
    tiny_checkpoint: Path, photos: Path, data_file: Path, tmp_path: Path
) -> None:
    index = tmp_path / "index"
    aladin(
        *["index", "build", "--model", tiny_checkpoint, "--out", index],
        *["--images", photos, data_file],
    )
    of_list = [json.loads(line) for line in data_file.read_text("utf-8").splitlines() if line]
    assert len(ids(index)) == 6 + len(of_list)


def test_sources_that_cannot_be_one_index_are_refused(
    tiny_checkpoint: Path, photos: Path, tmp_path: Path
) -> None:
    build = ["index", "build", "--model", tiny_checkpoint, "--out", tmp_path / "index", "--images"]
    result = aladin(*build, photos / "0.png", tmp_path / "gone.png", code=2)
    assert "gone.png: no such file or folder" in result.stderr
    result = aladin(*build, photos, photos / "0.png", "--strict", code=2)
    assert "'0.png'" in result.stderr
    other = tmp_path / "empty"
    other.mkdir()
    result = aladin(*build, photos, other, code=2)
    assert f"{other}: holds no photo" in result.stderr
    assert not (tmp_path / "index" / "CURRENT").exists()


def test_a_photo_that_two_sources_hold_is_indexed_once_and_named(
    tiny_checkpoint: Path, photos: Path, tmp_path: Path
) -> None:
    index = tmp_path / "index"
    build = ["index", "build", "--model", tiny_checkpoint, "--out", index, "--images"]
    result = aladin(*build, photos, photos / "0.png")
    assert "skipped 0.png: images: id '0.png' repeats" in result.stderr
    assert ids(index).count("0.png") == 1


def test_photos_outside_of_all_sources_are_named(
    tiny_checkpoint: Path, photos: Path, tmp_path: Path
) -> None:
    first, second = tmp_path / "first", tmp_path / "second"
    for folder in (first, second):
        folder.mkdir()
    Image.new("RGB", (40, 40), "red").save(first / "red.png")
    (second / "link.png").symlink_to(first / "red.png")  # in another source, which is shown too
    (second / "away.png").symlink_to(photos / "0.png")
    result = aladin(
        *["index", "build", "--model", tiny_checkpoint, "--out", tmp_path / "index"],
        *["--images", first, second],
    )
    assert f"photos outside of {first} and {second}: 1 (1 by a link)" in result.stderr

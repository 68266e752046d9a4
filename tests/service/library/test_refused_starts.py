"""``aladin photos`` that is refused: the libraries are afterwards as they were, byte for byte."""

from __future__ import annotations

import shutil
import socket
from pathlib import Path

import pytest
from typer.testing import CliRunner

from aladin_service.cli import app
from aladin_service.library.libraries import library_of
from tests.service.conftest import make_photo


def tree(folder: Path) -> dict[str, bytes | None]:
    """Everything below a folder, and the folder itself: contents of files, None of folders."""
    if not folder.exists():
        return {}
    files = [folder, *folder.rglob("*")]
    return {str(each): each.read_bytes() if each.is_file() else None for each in files}


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of the libraries, inside another that does not exist either."""
    monkeypatch.setenv("ALADIN_LIBRARIES_DIR", str(tmp_path / "data" / "libraries"))
    monkeypatch.setenv("ALADIN_MODELS_DIR", str(tmp_path / "models"))
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path / "hub"))
    return tmp_path / "data" / "libraries"


@pytest.fixture
def photos(tmp_path: Path) -> Path:
    """A folder with two photos, with a file that is damaged, and with no photo at all."""
    folder = tmp_path / "photos"
    for name in ("two", "damaged", "none"):
        (folder / name).mkdir(parents=True)
    for number in range(2):
        make_photo(number).save(folder / "two" / f"{number}.png")
    (folder / "damaged" / "a.jpg").write_bytes(b"\xff\xd8\xff\xe0 no photo")
    (folder / "none" / "notes.txt").write_text("no photo", encoding="utf-8")
    return folder


@pytest.fixture
def models(tmp_path: Path, tiny_checkpoint: Path) -> Path:
    """Folders that are no model, or that hold a damaged one or one of photos alone."""
    (tmp_path / "given" / "empty").mkdir(parents=True)
    broken = tmp_path / "given" / "broken"
    shutil.copytree(tiny_checkpoint, broken)
    (broken / "model.safetensors").write_bytes(b"damaged")
    single = tmp_path / "given" / "photos-alone"
    single.mkdir()
    (single / "config.json").write_text('{"model_type": "vit"}', encoding="utf-8")
    return tmp_path / "given"


@pytest.mark.parametrize(
    ("folder", "model", "has_others", "message"),
    [
        ("two", "given/empty", False, "empty: not a checkpoint, it has no config.json"),
        ("two", "given/broken", True, "broken/model.safetensors"),
        ("two", "given/photos-alone", False, "expected a dual encoder such as CLIP or SigLIP"),
        ("two", "nobody/nothing", True, "nobody/nothing: the hub cannot be reached"),
        ("damaged", "tiny", False, "no photo to begin with"),
        ("none", "tiny", True, "expected photos here or in a subfolder, found none"),
        ("missing", "tiny", False, "expected a folder of photos, found nothing"),
        ("two", "tiny", False, "it is in use"),
    ],
)
def test_a_refused_start_changes_nothing(
    folder: str,
    model: str,
    has_others: bool,
    message: str,
    place: Path,
    photos: Path,
    models: Path,
    tmp_path: Path,
    tiny_checkpoint: Path,
) -> None:
    if has_others:
        library_of([photos], "org/clip", place).save()
    before = tree(place.parent)
    given = {"tiny": tiny_checkpoint, "nobody/nothing": model}.get(model, tmp_path / model)
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1]) if message == "it is in use" else "0"
        words = ["photos", photos / folder, "--model", given, "--no-browser", "--port", port]
        refused = CliRunner().invoke(app, [*map(str, words)])
    assert refused.exit_code == 2
    assert message in refused.stderr
    assert tree(place.parent) == before
    del models

"""What a command cannot write, or must not write to, is refused before anything is done."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner, Result

from aladin_index.format.layout import live_generation
from aladin_search import Error, build
from aladin_service.cli import app
from aladin_service.library.libraries import library_of


def aladin(*words: object, code: int = 0) -> Result:
    result = CliRunner().invoke(app, [str(word) for word in words])
    assert result.exit_code == code, result.output
    return result


@pytest.fixture
def photos(data_file: Path, tmp_path: Path) -> Path:
    """A folder of photos."""
    folder = tmp_path / "photos"
    folder.mkdir()
    shutil.copyfile(data_file.parent / "photo-0.png", folder / "a.png")
    return folder


@pytest.fixture
def encodings(tmp_path: Path) -> Path:
    """What clip-retrieval leaves of one photo."""
    folder = tmp_path / "encodings"
    (folder / "img_emb").mkdir(parents=True)
    np.save(folder / "img_emb" / "img_emb_0.npy", np.eye(1, 16, dtype=np.float32))
    return folder


@pytest.mark.parametrize(
    ("plot", "says"),
    [
        ("curves.doc", "expected the name of a .png file"),
        ("file/curves.png", "cannot be written ("),
    ],
)
def test_curves_that_cannot_be_drawn_are_refused_before_a_generation_is_made(
    index_folder: Path, tmp_path: Path, plot: str, says: str
) -> None:
    index = Path(shutil.copytree(index_folder, tmp_path / "index"))
    (tmp_path / "file").write_text("no folder")
    for command in ("tune", "info"):
        result = aladin("index", command, index, "--plot", tmp_path / plot, code=2)
        assert says in result.stderr
        assert result.stdout == ""
    assert live_generation(index) == 1


def test_an_index_is_not_written_among_photos(
    photos: Path, encodings: Path, index_folder: Path, tiny_checkpoint: Path
) -> None:
    model = ["--model", tiny_checkpoint]
    for words in (
        ["build", *model, "--images", photos],
        ["import", encodings, *model],
        ["merge", index_folder],
        ["push", index_folder, "--url", "http://127.0.0.1:1", "--name", "n"],
        ["export", index_folder],
    ):
        result = aladin("index", *words, "--out", photos, code=2)
        assert str(photos) in result.stderr, words
    for command in ("rollback", "compact"):
        assert "no index here" in aladin("index", command, photos, code=2).stderr
    assert [path.name for path in photos.iterdir()] == ["a.png"]


@pytest.mark.parametrize("there", [[], ["lost+found", ".DS_Store"]])
def test_a_folder_that_is_as_good_as_empty_is_taken(
    photos: Path, tiny_checkpoint: Path, tmp_path: Path, there: list[str]
) -> None:
    out = tmp_path / "volume"
    out.mkdir()
    for name in there:
        (out / name).mkdir()
    words = ["index", "build", "--model", tiny_checkpoint, "--images", photos, "--out", out]
    assert "generation 1, 1 images" in aladin(*words).stdout
    (out / "notes.txt").write_text("mine")  # an index is one whatever else its folder holds
    assert "generation 2, 1 images" in aladin(*words, "--replace").stdout


def test_an_index_is_replaced_if_that_is_asked_for_alone(
    photos: Path, encodings: Path, index_folder: Path, tiny_checkpoint: Path, tmp_path: Path
) -> None:
    """By each command that writes an index, and in Python."""
    out = Path(shutil.copytree(index_folder, tmp_path / "index"))
    aladin("index", "delete", out, "--target", "images", "plain")
    shutil.copytree(index_folder, tmp_path / "part")
    model = ["--model", tiny_checkpoint]
    calls = (
        ["build", *model, "--images", photos],
        ["build", *model, "--images", photos, "--resume"],  # there is nothing to resume
        ["import", encodings, *model],
        ["merge", tmp_path / "part"],
    )
    there = "an index is here already, generation 1 with 5 images and 12 texts: choose"
    for words in calls:
        refused = aladin("index", *words, "--out", out, code=2)
        assert f"{out}: {there}" in refused.stderr, words
        assert "--replace" in refused.stderr
        assert refused.stdout == ""
    with pytest.raises(Error, match=there):
        build(photos, model=tiny_checkpoint, out=out)
    assert live_generation(out) == 1
    for number, words in enumerate(calls[:1] + calls[2:], start=2):
        done = aladin("index", *words, "--out", out, "--replace")
        assert f"generation {number}, " in done.stdout
    with build(photos, model=tiny_checkpoint, out=out, replace=True) as index:
        assert [item.id for item in index.items()] == ["a.png"]
    aladin("index", "rollback", out, "--to", 1)


def test_a_build_goes_on_without_being_asked_again(
    photos: Path, index_folder: Path, tiny_checkpoint: Path, tmp_path: Path
) -> None:
    """Of a new index, of one that is replaced, and one that was complete."""
    words = ["index", "build", "--model", tiny_checkpoint, "--images", photos, "--out"]
    for out in (tmp_path / "new", Path(shutil.copytree(index_folder, tmp_path / "index"))):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr("aladin_index.building.builder.write_generation", interrupted)
            stopped = CliRunner().invoke(app, [*map(str, words), str(out), "--replace"])
        assert stopped.exit_code != 0
        built = aladin(*words, out, "--resume").stdout
        assert ", 1 images" in built
        assert aladin(*words, out, "--resume").stdout == built


def interrupted(*_: object, **__: object) -> int:
    raise KeyboardInterrupt


def test_the_index_of_a_library_is_never_replaced(
    photos: Path,
    index_folder: Path,
    tiny_checkpoint: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("ALADIN_LIBRARIES_DIR", str(tmp_path / "libraries"))
    elsewhere = Path(shutil.copytree(index_folder, tmp_path / "elsewhere"))
    for index in (None, elsewhere):
        library = library_of([photos], str(tiny_checkpoint), tmp_path / "libraries", index)
        library.save()
        if index is None:
            shutil.copytree(index_folder, library.index)
        words = ["--model", tiny_checkpoint, "--images", photos, "--out", library.index]
        for more in ([], ["--replace"], ["--resume"]):
            refused = aladin("index", "build", *words, *more, code=2)
            assert f"the index of the library {library.name}, which follows" in refused.stderr
            assert f"{library.folders[0]}; choose another folder" in refused.stderr
        with pytest.raises(Error, match=library.name):
            build(photos, model=tiny_checkpoint, out=library.index, replace=True)
        assert live_generation(library.index) == 1


def test_a_folder_with_names_like_those_of_an_index_is_still_not_one(
    photos: Path, tiny_checkpoint: Path, tmp_path: Path
) -> None:
    project = tmp_path / "project"
    shutil.copytree(photos, project / "photos")
    shutil.copytree(tiny_checkpoint, project / "model")
    words = ["--model", project / "model", "--images", project / "photos", "--out", project]
    assert "got a folder that contains 'model'" in aladin("index", "build", *words, code=2).stderr


@pytest.mark.parametrize("place", ["/proc/ix", "{file}/ix"])
def test_a_folder_that_cannot_be_made_is_one_clear_error(
    photos: Path, encodings: Path, index_folder: Path, tiny_checkpoint: Path, place: str
) -> None:
    out = Path(place.format(file=photos / "a.png"))
    for words in (
        ["build", "--model", tiny_checkpoint, "--images", photos],
        ["import", encodings, "--model", tiny_checkpoint],
        ["merge", index_folder],
    ):
        result = CliRunner().invoke(app, [str(word) for word in ["index", *words, "--out", out]])
        assert result.exit_code in (1, 2)
        last = result.stderr.splitlines()[-1]
        assert last.startswith((f"error: cannot write to {out}: ", f"error: {out}: expected a"))
        assert "live generation" not in last
        assert "can be run again" not in last


def test_the_folder_of_every_other_command_is_checked_before_the_work(
    data_file: Path, index_folder: Path, tiny_checkpoint: Path
) -> None:
    out = Path("/proc/out")
    for words in (
        ["train", "demo"],
        ["compare", "demo", "flickr8k"],
        ["demo", "--no-serve"],
        ["convert", "towers", "someone/clip"],
        ["export", "onnx", tiny_checkpoint],
        ["index", "export", index_folder],
        ["regions", "extract", data_file, "--detector", "someone/detr"],
    ):
        result = aladin(*words, "--out", out, code=2)
        last = result.stderr.splitlines()[-1]
        assert last.startswith(f"error: cannot write to {out}"), words
        assert "No such file or directory" in last
        assert "Errno" not in last


def stopped(*_: object, **__: object) -> None:
    """Stand in for a user who presses Ctrl-C."""
    raise KeyboardInterrupt


def test_a_build_that_is_stopped_says_how_to_go_on(
    data_file: Path, tiny_checkpoint: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = tmp_path / "index"
    words = ["index", "build", "--model", tiny_checkpoint, "--images", data_file, "--out", out]
    with monkeypatch.context() as patch:
        patch.setattr("aladin_index.building.shards.write_shard", stopped)
        result = CliRunner().invoke(app, [str(word) for word in words])
        assert result.exit_code == 130
        resume = "stopped: the same command with --resume continues from there"
        assert resume in result.stderr.splitlines()
        patch.setattr("aladin_index.building.builder.load_for_inference", stopped)
        other = [str(word) for word in [*words[:-1], tmp_path / "other"]]
        assert "stopped: nothing was encoded yet" in CliRunner().invoke(app, other).stderr
    assert "an interrupted build is here" in aladin("search", out, "dog", code=2).stderr
    assert "generation 1, 6 images" in aladin(*words, "--resume").stdout


def test_drawings_and_negatives_are_not_made_for_nothing(
    index_folder: Path, tiny_checkpoint: Path, data_file: Path, tmp_path: Path
) -> None:
    (tmp_path / "file").write_text("no folder")
    out = tmp_path / "file" / "a.png"
    result = aladin("search", index_folder, "dog", "--explain", "--out", out, code=2)
    assert f"--out: {out} cannot be written" in result.stderr
    result = aladin("mine", tiny_checkpoint, data_file, "--out", out, code=2)
    assert f"--out: {out} cannot be written" in result.stderr

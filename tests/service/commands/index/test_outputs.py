"""What is at the place of an output: other files, an index, an interrupted build, a library."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from aladin_index.format.layout import live_generation
from aladin_search import Error, build
from aladin_service.cli import app
from aladin_service.library.libraries import library_of
from tests.service.commands.conftest import aladin


@pytest.fixture
def makers(
    photos: Path, index_folder: Path, tiny_checkpoint: Path, tmp_path: Path
) -> list[list[object]]:
    """The commands that make an index, without where it goes."""
    encodings = tmp_path / "encodings"
    (encodings / "img_emb").mkdir(parents=True)
    np.save(encodings / "img_emb" / "img_emb_0.npy", np.eye(1, 16, dtype=np.float32))
    part = shutil.copytree(index_folder, tmp_path / "part")
    model = ["--model", tiny_checkpoint]
    made = (["build", *model, "--images", photos], ["import", encodings, *model], ["merge", part])
    return [["index", *words] for words in made]


def stopped(*_: object, **__: object) -> None:
    raise KeyboardInterrupt


def test_an_index_is_not_written_among_photos(
    makers: list[list[object]], photos: Path, index_folder: Path
) -> None:
    push = ["index", "push", index_folder, "--url", "http://127.0.0.1:1", "--name", "n"]
    for words in (*makers, push, ["index", "export", index_folder]):
        assert str(photos) in aladin(*words, "--out", photos, code=2).stderr, words
    assert [path.name for path in photos.iterdir()] == ["a.png"]


@pytest.mark.parametrize("there", [[], ["lost+found", ".DS_Store"]])
def test_a_folder_that_is_as_good_as_empty_is_taken(
    makers: list[list[object]], tmp_path: Path, there: list[str]
) -> None:
    out = tmp_path / "volume"
    out.mkdir()
    for name in there:
        (out / name).mkdir()
    assert "generation 1, 1 images" in aladin(*makers[0], "--out", out).stdout
    (out / "notes.txt").write_text("mine")  # an index is one whatever else its folder holds
    assert "generation 2, 1 images" in aladin(*makers[0], "--out", out, "--replace").stdout


def test_an_index_is_replaced_only_when_that_is_asked_for(
    makers: list[list[object]], index: Path, photos: Path, tiny_checkpoint: Path
) -> None:
    """By each command that writes an index, and in Python."""
    aladin("index", "delete", index, "--target", "images", "plain")
    there = "an index is here already, generation 1 with 5 images and 12 texts: choose"
    for words in (*makers, [*makers[0], "--resume"]):  # there is nothing to resume
        refused = aladin(*words, "--out", index, code=2)
        assert f"{index}: {there}" in refused.stderr and "--replace" in refused.stderr, words
        assert refused.stdout == ""
    with pytest.raises(Error, match=there):
        build(photos, model=tiny_checkpoint, out=index)
    assert live_generation(index) == 1
    for number, words in enumerate(makers, start=2):
        assert f"generation {number}, " in aladin(*words, "--out", index, "--replace").stdout
    with build(photos, model=tiny_checkpoint, out=index, replace=True) as opened:
        assert [item.id for item in opened.items()] == ["a.png"]
    aladin("index", "rollback", index, "--to", 1)


def test_a_build_that_is_stopped_says_how_to_go_on_and_goes_on_without_being_asked_again(
    makers: list[list[object]], index: Path, tmp_path: Path
) -> None:
    """Of a new index, and of one that is replaced; what is complete is not built again."""
    words, new = [*makers[0], "--out"], tmp_path / "new"

    def stop_at(function: str, *more: object) -> list[str]:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(f"aladin_index.building.{function}", stopped)
            return aladin(*words, *more, code=130).stderr.splitlines()

    nothing = stop_at("builder.load_for_inference", tmp_path / "other")
    assert any("stopped: nothing was encoded yet" in line for line in nothing)
    for out, function in ((new, "shards.write_shard"), (index, "builder.write_generation")):
        said = stop_at(function, out, "--replace")
        assert "stopped: the same command with --resume continues from there" in said
        if out == new:
            told = aladin("search", out, "dog", code=2).stderr
            assert "an interrupted build is here" in told
        built = aladin(*words, out, "--resume").stdout
        assert ", 1 images" in built
        assert aladin(*words, out, "--resume").stdout == built


def test_the_index_of_a_library_is_never_replaced(
    makers: list[list[object]],
    photos: Path,
    index: Path,
    index_folder: Path,
    tiny_checkpoint: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("ALADIN_LIBRARIES_DIR", str(tmp_path / "libraries"))
    for elsewhere in (None, index):
        library = library_of([photos], str(tiny_checkpoint), tmp_path / "libraries", elsewhere)
        library.save()
        if elsewhere is None:
            shutil.copytree(index_folder, library.index)
        for more in ([], ["--replace"], ["--resume"]):
            said = aladin(*makers[0], "--out", library.index, *more, code=2).stderr
            assert f"the index of the library {library.name}, which follows" in said
        with pytest.raises(Error, match=library.name):
            build(photos, model=tiny_checkpoint, out=library.index, replace=True)
        assert live_generation(library.index) == 1


@pytest.mark.parametrize("place", ["/proc/ix", "{file}/ix"])
def test_a_folder_that_cannot_be_made_is_one_clear_error(
    makers: list[list[object]], photos: Path, place: str
) -> None:
    out = Path(place.format(file=photos / "a.png"))
    for words in makers:
        result = CliRunner().invoke(app, [str(word) for word in [*words, "--out", out]])
        assert result.exit_code in (1, 2)
        last = result.stderr.splitlines()[-1]
        assert last.startswith((f"error: cannot write to {out}: ", f"error: {out}: expected a"))
        assert "live generation" not in last and "can be run again" not in last

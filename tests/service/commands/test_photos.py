"""``aladin photos``: which library it opens, and what it says."""

from __future__ import annotations

import json
import pickle
import shutil
import socket
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

import aladin_service.commands.photos
import aladin_service.library.opening
from aladin_index.building.builder import build_index
from aladin_index.format.skipped import SkippedItem
from aladin_index.sync.apply import SyncReport
from aladin_network.conversion.named_models import DEFAULT_MODEL
from aladin_network.errors import ConfigError
from aladin_service.cli import app
from aladin_service.commands.photo_messages import photo_lines, photo_progress
from aladin_service.http.server import check_address
from aladin_service.item_sources import image_items
from aladin_service.library.libraries import Library, all_libraries, library_of
from tests.service.conftest import make_photo

ADDRESS = "http://127.0.0.1:8000"


def run(*words: object) -> Result:
    return CliRunner().invoke(app, ["photos", *map(str, words)])


@pytest.fixture
def libraries(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of the libraries, and of the converted models beside it."""
    monkeypatch.setenv("ALADIN_LIBRARIES_DIR", str(tmp_path / "libraries"))
    monkeypatch.setenv("ALADIN_MODELS_DIR", str(tmp_path / "models"))
    return tmp_path / "libraries"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder of two photos."""
    (tmp_path / "Holidays").mkdir()
    for number in range(2):
        make_photo(number).save(tmp_path / "Holidays" / f"{number}.png")
    return tmp_path / "Holidays"


@pytest.fixture
def opened(monkeypatch: pytest.MonkeyPatch) -> list[tuple[Library, Any]]:
    """What is opened, in place of a service; its index is built without a second process."""
    seen: list[tuple[Library, Any]] = []

    def open_library(
        library: Library, plan: Any, *, on_address: Callable[[str], None], **_: object
    ) -> None:
        with library.claimed():
            library.save()
            seen.append((library, plan))
            if plan.checkpoint is not None:
                build_index(plan.checkpoint, plan.index, image_items(plan.folders[0], None), None)
            on_address(ADDRESS)

    monkeypatch.setattr(aladin_service.library.opening, "open_library", open_library)
    return seen


def test_a_library_is_made_once_and_found_without_its_model(
    libraries: Path, folder: Path, opened: list[tuple[Library, Any]], clip_folder: Path
) -> None:
    first = run(folder, "--model", clip_folder, "--no-browser", "--exclude", "*.gif", "--no-exif")
    assert (first.exit_code, first.stdout) == (0, f"{ADDRESS}\n"), first.stderr
    library, plan = opened[0]
    assert library.name.startswith("Holidays-") and library.place.parent == libraries
    assert plan.checkpoint.parent == libraries.parent / "models"
    assert (plan.folders, plan.exclude, plan.exif, plan.watch) == (
        (folder,),
        ("*.gif",),
        False,
        True,
    )
    again = run(folder, "--no-watch", "--no-browser")
    assert again.exit_code == 0
    assert opened[1][0] == library
    plan = opened[1][1]
    assert (plan.checkpoint, plan.watch, plan.exclude) == (None, False, ("*.gif",))
    for patterns, kept in (
        [["--exclude", "Old", "--exclude", "*.bmp"], ("Old", "*.bmp")],
        [["--exclude", ""], ()],
    ):
        assert run(folder, "--no-browser", *patterns).exit_code == 0
        changed, plan = opened[-1]
        assert plan.exclude == changed.exclude == kept
        assert changed == replace(library, exclude=kept)

    listed = run("--list")
    size = sum(each.stat().st_size for each in library.index.rglob("*") if each.is_file())
    assert listed.stdout.splitlines() == [
        library.name,
        f"  folder  {folder}",
        "  photos  2",
        f"  model   {clip_folder}",
        f"  index   {library.index} ({size / 1e6:,.1f} MB)",
    ]
    assert run("--remove", "nothing").exit_code == 2
    removed = run("--remove", library.name)
    assert (removed.exit_code, removed.stdout) == (0, f"{library.name}: removed\n")
    assert all_libraries(libraries) == ([], {}) and len(list(folder.iterdir())) == 2
    assert run("--list").stderr == "no libraries yet: `aladin photos FOLDER` makes one\n"


def test_folders_with_libraries_of_several_models_need_one_named(
    libraries: Path,
    folder: Path,
    opened: list[tuple[Library, Any]],
    clip_folder: Path,
    tiny_checkpoint: Path,
) -> None:
    for model in (clip_folder, tiny_checkpoint):
        assert run(folder, "--model", model, "--no-browser").exit_code == 0
    assert len(all_libraries(libraries)[0]) == 2
    both = run(folder)
    assert both.exit_code == 2
    assert str(clip_folder) in both.stderr and "choose one with --model" in both.stderr
    assert len(opened) == 2


def test_without_a_hub_nothing_is_left(
    libraries: Path,
    folder: Path,
    opened: list[tuple[Library, Any]],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(libraries.parent / "hub"))
    failed = run(folder)
    assert failed.exit_code == 2
    assert failed.stderr.splitlines()[-1].startswith(
        f"error: {DEFAULT_MODEL}: the hub cannot be reached"
    )
    assert not libraries.exists() and opened == []


def test_a_folder_without_photos_needs_no_model(
    libraries: Path,
    folder: Path,
    tmp_path: Path,
    opened: list[tuple[Library, Any]],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def fail(name: object) -> Path:
        raise AssertionError(name)

    monkeypatch.setattr(aladin_service.commands.photos, "model_folder", fail)
    (tmp_path / "empty" / "inside").mkdir(parents=True)
    (tmp_path / "empty" / "inside" / "notes.txt").write_text("no photo", encoding="utf-8")
    refused = run(tmp_path / "empty")
    assert (refused.exit_code, refused.stderr) == (
        2,
        f"error: {tmp_path / 'empty'}: expected photos here or in a subfolder, found none\n",
    )
    assert run(folder, "--exclude", "*.png").exit_code == 2
    assert not libraries.exists() and opened == []


def test_a_library_without_an_index_is_listed(libraries: Path, folder: Path) -> None:
    library_of([folder], "some/model", libraries).save()
    assert "  photos  none yet\n" in run("--list").stdout


def test_a_damaged_library_leaves_the_others_in_use(
    libraries: Path, folder: Path, opened: list[tuple[Library, Any]], clip_folder: Path
) -> None:
    words = (folder, "--model", clip_folder, "--no-browser")
    assert run(*words).exit_code == 0
    for name, content in (("Old-1", "{"), ("New-2", '{"schema_version": 9}')):
        (libraries / name / "index").mkdir(parents=True)
        (libraries / name / "library.json").write_text(content, encoding="utf-8")

    assert run(*words).exit_code == 0
    assert run(folder, "--no-browser").exit_code == 0
    assert len(opened) == 3
    listed = run("--list")
    assert listed.exit_code == 0
    assert listed.stdout.startswith(opened[0][0].name)
    newer, damaged = listed.stderr.splitlines()
    assert newer.startswith("warning: ") and "schema version 9, expected 1" in newer
    assert "Old-1/library.json: not the description of a library" in damaged
    assert damaged.endswith("; `aladin photos --remove Old-1` removes it")

    removed = run("--remove", "Old-1")
    assert (removed.exit_code, removed.stdout) == (0, "Old-1: removed\n")
    assert "known: Holidays" in run("--remove", "Old-1").stderr
    assert not (libraries / "Old-1").exists()

    # The description of the folders' own library is not replaced by a new one.
    file = opened[0][0].place / "library.json"
    file.write_text('{"schema_version": 9}', encoding="utf-8")
    refused = run(*words)
    assert refused.exit_code == 2 and len(opened) == 3
    assert "schema version 9, expected 1" in refused.stderr
    assert file.read_text(encoding="utf-8") == '{"schema_version": 9}'


def test_passes_in_words(capsys: pytest.CaptureFixture[str]) -> None:
    lines = photo_lines()
    damaged = SkippedItem("a.jpg", "damaged")

    def said(**fields: Any) -> list[str]:
        lines(SyncReport(**fields))
        captured = capsys.readouterr()
        assert captured.out == ""
        return captured.err.splitlines()

    assert said(added=["b"] * 1024, unchanged=128, remaining=1720, skipped=[damaged]) == [
        "cannot be used: a.jpg: damaged",
        "1,152 photos: 1,024 added; 1,720 are still to be added; 1 file cannot be used",
    ]
    assert said(unchanged=1152, skipped=[damaged]) == []
    assert said(changed=["c"], moved=["d", "e"], deleted=["f"], unchanged=1148) == [
        "1,151 photos: 1 changed, 2 moved, 1 removed"
    ]
    assert said(unchanged=1, waiting=1) == []
    again = SkippedItem("b.jpg", "damaged")
    assert said(unchanged=1151, skipped=[again]) == ["cannot be used: b.jpg: damaged"]
    sent = pickle.loads(pickle.dumps(photo_lines()))  # a process of its own prints them
    sent(SyncReport(unchanged=1))
    assert capsys.readouterr().err == "1 photo: nothing has changed\n"


def test_only_long_work_has_progress(capsys: pytest.CaptureFixture[str]) -> None:
    with photo_progress() as progress:
        for total, unit in ((900, "files compared"), (3, "photos"), (200, "photos")):
            progress.start(total, unit)
            progress.advance(total)
            progress.note(read_s=1.0)
    [line] = capsys.readouterr().err.splitlines()
    assert line.startswith("200/200 photos, in ") and "read_s" not in line


def test_a_second_start_prints_the_address_of_the_first(
    libraries: Path, folder: Path, opened: list[tuple[Library, Any]], clip_folder: Path
) -> None:
    words = (folder, "--model", clip_folder, "--no-browser")
    assert run(*words).exit_code == 0
    [library], _ = all_libraries(libraries)
    with library.claimed() as claim:
        early = run(*words)
        assert early.exit_code == 2
        assert "another process serves this library and does not listen yet" in early.stderr
        claim.announce("http://127.0.0.1:8003")
        second = run(*words)
        assert (second.exit_code, second.stdout) == (0, "http://127.0.0.1:8003\n")
        assert "another process serves these photos already" in second.stderr
        assert "excludes" not in second.stderr
        third = run(*words, "--exclude", "*.png")
        assert (third.exit_code, third.stdout) == (0, "http://127.0.0.1:8003\n")
        assert "it excludes nothing; stop it and start again to change that" in third.stderr
        assert "  page    http://127.0.0.1:8003" in run("--list").stdout
    assert len(opened) == 1


@pytest.mark.parametrize(
    ("variables", "shown"),
    [
        ({"DISPLAY": ":0"}, True),
        ({"WAYLAND_DISPLAY": "wayland-0"}, True),
        ({"DISPLAY": ":10", "SSH_CONNECTION": "1.2.3.4"}, False),
        ({}, False),
    ],
)
def test_a_browser_is_opened_where_its_user_is(
    variables: dict[str, str],
    shown: bool,
    libraries: Path,
    folder: Path,
    opened: list[tuple[Library, Any]],
    tiny_checkpoint: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    del libraries
    for name in ("DISPLAY", "WAYLAND_DISPLAY", "SSH_CONNECTION", "SSH_TTY"):
        monkeypatch.delenv(name, raising=False)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr("sys.platform", "linux")
    pages: list[str] = []
    monkeypatch.setattr(aladin_service.commands.photos, "_show_in_browser", pages.append)
    assert run(folder, "--model", tiny_checkpoint).exit_code == 0
    assert pages == ([ADDRESS] if shown else [])
    assert len(opened) == 1


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ([], "expected at least one FOLDER of photos, got none"),
        (["nowhere"], "nowhere: expected a folder of photos, found nothing"),
    ],
)
def test_mistakes(words: list[str], message: str, libraries: Path) -> None:
    failed = run(*words)
    assert failed.exit_code == 2
    assert message in failed.stderr
    assert not libraries.exists()


def test_a_port_that_is_taken_is_an_error_only_if_it_was_asked_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        monkeypatch.setattr("aladin_service.http.server.DEFAULT_PORT", port)
        check_address("127.0.0.1", None)
        with pytest.raises(ConfigError, match=rf"port {port}: .* choose another with --port"):
            check_address("127.0.0.1", port)
        monkeypatch.setattr("aladin_service.http.server._PORTS_TRIED", 1)
        with pytest.raises(ConfigError, match=rf"the ports {port} to {port} are in use"):
            check_address("127.0.0.1", None)


@pytest.mark.parametrize(
    ("recipe", "message"),
    [
        (
            {"converted_from": {"vision": "dino", "text": "bert"}, "seed": 0},
            "the towers of this model were never trained together",
        ),
        (
            {"name": "demo", "data": {"source": "aladin-demo/data/captions.jsonl"}},
            "trained on the drawn scenes of `aladin demo` alone",
        ),
    ],
)
def test_a_model_that_knows_nothing_of_photos_is_refused(
    recipe: dict[str, Any],
    message: str,
    libraries: Path,
    folder: Path,
    opened: list[tuple[Library, Any]],
    tiny_checkpoint: Path,
    tmp_path: Path,
) -> None:
    model = tmp_path / "model"
    shutil.copytree(tiny_checkpoint, model)
    config = json.loads((model / "config.json").read_text(encoding="utf-8"))
    config["provenance"] |= {"recipe": json.dumps(recipe), "stage": "convert"}
    (model / "config.json").write_text(json.dumps(config), encoding="utf-8")
    refused = run(folder, "--model", model, "--no-browser")
    assert refused.exit_code == 2 and message in refused.stderr
    assert not libraries.exists() and opened == []


def test_many_files_of_one_reason_share_a_line(capsys: pytest.CaptureFixture[str]) -> None:
    heic = [SkippedItem(f"IMG_{number}.HEIC", "HEIC needs a package") for number in range(16)]
    lines = photo_lines()
    lines(SyncReport(added=["b"], skipped=[SkippedItem("a.jpg", "damaged"), *heic]))
    lines(SyncReport(changed=["b"], skipped=[*heic], other_files={"videos": 8}))
    assert capsys.readouterr().err.splitlines() == [
        "cannot be used: 16 x HEIC needs a package (IMG_0.HEIC, IMG_1.HEIC, IMG_2.HEIC, ...)",
        "cannot be used: a.jpg: damaged",
        "1 photo: 1 added; 17 files cannot be used",
        "1 photo: 1 changed; 16 files cannot be used; not photos: 8 videos",
    ]


def test_commands_take_a_library_by_its_name_or_its_folder(
    libraries: Path, folder: Path, opened: list[tuple[Library, Any]], tiny_checkpoint: Path
) -> None:
    assert run(folder, "--model", tiny_checkpoint, "--no-browser").exit_code == 0
    [library] = [each for each, _ in opened]
    for name in (library.name, folder, library.place, library.index):
        found = CliRunner().invoke(app, ["search", str(name), "a red circle", "-k", "1"])
        assert found.exit_code == 0, found.stderr
    for name in (folder.parent, "nothing"):
        unknown = CliRunner().invoke(app, ["search", str(name), "a red circle"])
        assert unknown.exit_code == 2 and "no index here, it has no CURRENT" in unknown.stderr
    other = library_of([folder], "another/model", libraries)
    other.save()
    both = CliRunner().invoke(app, ["search", str(folder), "a red circle"])
    assert both.exit_code == 2
    assert str(library.index) in both.stderr and str(other.index) in both.stderr


def test_words_without_quotes_are_named_in_the_error() -> None:
    refused = CliRunner().invoke(app, ["search", "INDEX", "two", "dogs"])
    assert refused.exit_code == 2
    assert 'put several words that belong together in quotes: "two dogs"' in refused.stderr

"""``aladin photos``: which library it opens, and what it says."""

from __future__ import annotations

import pickle
import socket
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import aladin_search
import aladin_service.commands.photos
import aladin_service.library.opening
from aladin_index.building.builder import build_index
from aladin_index.format.skipped import SkippedItem
from aladin_index.sync.apply import SyncReport
from aladin_network.errors import ConfigError
from aladin_service.commands.photo_messages import photo_lines, photo_progress
from aladin_service.http.server import check_address
from aladin_service.item_sources import image_items
from aladin_service.library.libraries import Library, all_libraries, library_of
from tests.service.commands.conftest import aladin, aladin_json

ADDRESS = "http://127.0.0.1:8000"
Opened = list[tuple[Library, Any]]


@pytest.fixture
def libraries(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of the libraries, and of the converted models beside it."""
    monkeypatch.setenv("ALADIN_LIBRARIES_DIR", str(tmp_path / "libraries"))
    monkeypatch.setenv("ALADIN_MODELS_DIR", str(tmp_path / "models"))
    return tmp_path / "libraries"


@pytest.fixture
def opened(monkeypatch: pytest.MonkeyPatch) -> Opened:
    """What is opened, in place of a service; its index is built without a second process."""
    seen: Opened = []

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


@pytest.fixture
def start(photos: Path, tiny_checkpoint: Path, libraries: Path) -> list[object]:
    del libraries
    return ["photos", photos, "--model", tiny_checkpoint, "--no-browser"]


def test_a_library_is_made_once_and_found_without_its_model(
    libraries: Path, photos: Path, opened: Opened, clip_folder: Path
) -> None:
    words = ["--model", clip_folder, "--no-browser", "--exclude", "*.gif", "--no-exif"]
    assert aladin("photos", photos, *words).stdout == f"{ADDRESS}\n"
    library, plan = opened[0]
    assert library.name.startswith("photos-") and library.place.parent == libraries
    assert plan.checkpoint.parent == libraries.parent / "models"
    assert (plan.folders, plan.exclude, plan.exif, plan.watch) == (
        *((photos,), ("*.gif",)),
        *(False, True),
    )
    aladin("photos", photos, "--no-watch", "--no-browser")
    again, plan = opened[1]
    assert again == library
    assert (plan.checkpoint, plan.watch, plan.exclude) == (None, False, ("*.gif",))
    for patterns, kept in (
        [["--exclude", "Old", "--exclude", "*.bmp"], ("Old", "*.bmp")],
        [["--exclude", ""], ()],
    ):
        aladin("photos", photos, "--no-browser", *patterns)
        changed, plan = opened[-1]
        assert plan.exclude == changed.exclude == kept
        assert changed == replace(library, exclude=kept)

    size = sum(each.stat().st_size for each in library.index.rglob("*") if each.is_file())
    assert aladin("photos", "--list").stdout.splitlines() == [
        library.name,
        f"  folder  {photos}",
        "  photos  1",
        f"  model   {clip_folder}",
        f"  index   {library.index} ({size / 1e6:,.1f} MB)",
    ]
    assert aladin("photos", "--remove", library.name).stdout == f"{library.name}: removed\n"
    assert all_libraries(libraries) == ([], {}) and len(list(photos.iterdir())) == 1
    said = aladin("photos", "--list").stderr
    assert said == "no libraries yet: `aladin photos FOLDER` makes one\n"
    library_of([photos], "some/model", libraries).save()
    assert "  photos  none yet\n" in aladin("photos", "--list").stdout


def test_libraries_of_several_models_need_one_named_and_commands_take_their_names(
    libraries: Path, photos: Path, opened: Opened, start: list[object], tiny_checkpoint: Path
) -> None:
    aladin(*start)
    [library] = [each for each, _ in opened]
    for name in (library.name, photos, library.place, library.index):
        aladin("search", name, "a red circle", "-k", "1")
        facts = aladin_json("index", "info", name)
        with aladin_search.open(name) as opened_index:
            assert opened_index.counts == {"images": facts["images"]["count"]}
    for name in (photos.parent, "nothing"):
        for words in (
            ["search", name, "dog"],
            ["serve", name],
            ["mcp", name],
            ["index", "info", name],
        ):
            said = aladin(*words, code=2).stderr
            assert f"{name}: no index here, it has no CURRENT; libraries are" in said
            assert f"{library.name} ({photos})" in said
    other = library_of([photos], "another/model", libraries)
    other.save()
    said = aladin("photos", photos, code=2).stderr
    assert str(tiny_checkpoint) in said and "choose one with --model" in said
    said = aladin("search", photos, "a red circle", code=2).stderr
    assert "give one's name" in said and library.name in said and other.name in said
    assert len(opened) == 1


def test_a_damaged_library_leaves_the_others_in_use(
    libraries: Path, opened: Opened, start: list[object]
) -> None:
    aladin(*start)
    for name, content in (("Old-1", "{"), ("New-2", '{"schema_version": 9}')):
        (libraries / name / "index").mkdir(parents=True)
        (libraries / name / "library.json").write_text(content, encoding="utf-8")
    aladin(*start)
    assert len(opened) == 2
    listed = aladin("photos", "--list")
    assert listed.stdout.startswith(opened[0][0].name)
    newer, damaged = listed.stderr.splitlines()
    assert newer.startswith("warning: ") and "schema version 9, expected 1" in newer
    assert "Old-1/library.json: not the description of a library" in damaged
    assert damaged.endswith("; `aladin photos --remove Old-1` removes it")
    assert aladin("photos", "--remove", "Old-1").stdout == "Old-1: removed\n"
    assert "known: photos" in aladin("photos", "--remove", "Old-1", code=2).stderr
    assert not (libraries / "Old-1").exists()

    # The description of the folders' own library is not replaced by a new one.
    file = opened[0][0].place / "library.json"
    file.write_text('{"schema_version": 9}', encoding="utf-8")
    assert "schema version 9, expected 1" in aladin(*start, code=2).stderr
    assert len(opened) == 2
    assert file.read_text(encoding="utf-8") == '{"schema_version": 9}'


def test_a_second_start_prints_the_address_of_the_first(
    libraries: Path, opened: Opened, start: list[object]
) -> None:
    aladin(*start)
    [library], _ = all_libraries(libraries)
    with library.claimed() as claim:
        early = aladin(*start, code=2).stderr
        assert "another process serves this library and does not listen yet" in early
        claim.announce("http://127.0.0.1:8003")
        second, third = aladin(*start), aladin(*start, "--exclude", "*.png")
        assert second.stdout == third.stdout == "http://127.0.0.1:8003\n"
        assert "another process serves these photos already" in second.stderr
        assert "excludes" not in second.stderr
        assert "it excludes nothing; stop it and start again to change that" in third.stderr
        assert "  page    http://127.0.0.1:8003" in aladin("photos", "--list").stdout
    assert len(opened) == 1


@pytest.mark.usefixtures("opened")
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
    variables: dict[str, str], shown: bool, start: list[object], monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("DISPLAY", "WAYLAND_DISPLAY", "SSH_CONNECTION", "SSH_TTY"):
        monkeypatch.delenv(name, raising=False)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr("sys.platform", "linux")
    pages: list[str] = []
    monkeypatch.setattr(aladin_service.commands.photos, "_show_in_browser", pages.append)
    aladin(*start[:-1])
    assert pages == ([ADDRESS] if shown else [])


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


DAMAGED = SkippedItem("a.jpg", "damaged")
HEIC = [SkippedItem(f"IMG_{number}.HEIC", "HEIC needs a package") for number in range(16)]
# What is said of passes one after the other.
PASSES: list[list[tuple[SyncReport, list[str]]]] = [
    [
        (
            SyncReport(added=["b"] * 1024, unchanged=128, remaining=1720, skipped=[DAMAGED]),
            [
                "cannot be used: a.jpg: damaged",
                "1,152 photos: 1,024 added; 1,720 are still to be added; 1 file cannot be used",
            ],
        ),
        (SyncReport(unchanged=1152, skipped=[DAMAGED]), []),
        (
            SyncReport(changed=["c"], moved=["d", "e"], deleted=["f"], unchanged=1148),
            ["1,151 photos: 1 changed, 2 moved, 1 removed"],
        ),
        (SyncReport(unchanged=1, waiting=1), []),
        (
            SyncReport(unchanged=1151, skipped=[SkippedItem("b.jpg", "damaged")]),
            ["cannot be used: b.jpg: damaged"],
        ),
    ],
    [
        (
            SyncReport(added=["b"], skipped=[DAMAGED, *HEIC]),
            [
                "cannot be used: 16 x HEIC needs a package (IMG_0.HEIC, IMG_1.HEIC, IMG_2.HEIC, "
                "...)",
                "cannot be used: a.jpg: damaged",
                "1 photo: 1 added; 17 files cannot be used",
            ],
        ),
        (
            SyncReport(changed=["b"], skipped=HEIC, other_files={"videos": 8}),
            ["1 photo: 1 changed; 16 files cannot be used; not photos: 8 videos"],
        ),
    ],
    [(SyncReport(unchanged=1), ["1 photo: nothing has changed"])],
]


@pytest.mark.parametrize("passes", PASSES)
def test_passes_in_words(
    passes: list[tuple[SyncReport, list[str]]], capsys: pytest.CaptureFixture[str]
) -> None:
    lines = pickle.loads(pickle.dumps(photo_lines()))  # a process of its own prints them
    for report, expected in passes:
        lines(report)
        captured = capsys.readouterr()
        assert (captured.out, captured.err.splitlines()) == ("", expected)


def test_only_long_work_has_progress(capsys: pytest.CaptureFixture[str]) -> None:
    with photo_progress() as progress:
        for total, unit in ((900, "files compared"), (3, "photos"), (200, "photos")):
            progress.start(total, unit)
            progress.advance(total)
            progress.note(read_s=1.0)
    [line] = capsys.readouterr().err.splitlines()
    assert line.startswith("200/200 photos, in ") and "read_s" not in line

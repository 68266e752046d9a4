"""Libraries of photos: which one some folders have, who serves it, and how one is removed."""

from __future__ import annotations

import fcntl
import multiprocessing
import sys
import threading
from collections.abc import Callable
from multiprocessing.synchronize import Event
from pathlib import Path

import pytest
from platformdirs import user_data_path

from aladin_service.library.libraries import (
    LibraryInUseError,
    LibraryPlace,
    all_libraries,
    library_of,
)
from aladin_service.library.places import libraries_folder


@pytest.fixture
def libraries(tmp_path: Path) -> Path:
    return tmp_path / "libraries"


@pytest.fixture
def folder(tmp_path: Path) -> Callable[[str], Path]:
    def make(name: str) -> Path:
        (tmp_path / name).mkdir(parents=True, exist_ok=True)
        return tmp_path / name

    return make


def test_a_library_belongs_to_a_set_of_folders_and_a_model(
    libraries: Path, folder: Callable[[str], Path], tmp_path: Path
) -> None:
    one, two = folder("Holidays 2019"), folder("Family")
    both = library_of([one, two], "org/clip", libraries)
    assert both == library_of([two, one, two / "."], "org/clip", libraries)
    assert both.name.startswith("Family-and-1-more-")
    assert both.folders == (two, one)
    alone = library_of([one], "org/clip", libraries)
    assert alone.name.startswith("Holidays-2019-")
    assert alone.index == libraries / alone.name / "index"
    other_model = library_of([one], "org/siglip", libraries)
    elsewhere = library_of([one], "org/clip", libraries, tmp_path / "my index")
    assert len({each.name for each in (both, alone, other_model, elsewhere)}) == 4
    assert elsewhere.index == tmp_path / "my index" and elsewhere.is_elsewhere


def test_libraries_are_found_again(
    libraries: Path, folder: Callable[[str], Path], tmp_path: Path
) -> None:
    assert all_libraries(libraries) == ([], {})
    first = library_of([folder("b")], str(folder("model")), libraries)
    assert first.model == str(tmp_path / "model")
    second = library_of([folder("a")], "org/clip", libraries, tmp_path / "index")
    for library in (first, second):
        library.save()
        library.save()
    assert all_libraries(libraries) == ([second, first], {})
    (second.place / "library.json").write_text('{"schema_version": 9}')
    found, faults = all_libraries(libraries)
    assert found == [first]
    [(place, fault)] = faults.items()
    assert place == LibraryPlace(place=second.place)
    assert "schema version 9, expected 1" in str(fault)


def serve(place: Path, ready: Event, end: Event) -> None:
    [library], _ = all_libraries(place)
    with library.claimed() as claim:
        claim.announce("http://127.0.0.1:8001")
        ready.set()
        end.wait(60)


def test_one_process_serves_a_library_and_tells_others_its_address(
    libraries: Path, folder: Callable[[str], Path]
) -> None:
    library = library_of([folder("photos")], "org/clip", libraries)
    library.save()
    with library.claimed() as claim:
        with (
            pytest.raises(LibraryInUseError, match="does not listen yet") as early,
            library.claimed(),
        ):
            pass
        assert early.value.address is None
        claim.announce("http://127.0.0.1:8000")
        assert library.served_at() == "http://127.0.0.1:8000"
    assert library.served_at() is None

    context = multiprocessing.get_context("fork")
    ready, end = context.Event(), context.Event()
    other = context.Process(target=serve, args=(libraries, ready, end))
    other.start()
    assert ready.wait(60)
    with pytest.raises(LibraryInUseError, match=r"serves this library at http://127.0.0.1:8001"):
        library.remove()
    other.kill()  # which ends the claim, and leaves the address in the file
    other.join()
    assert library.served_at() is None
    with library.claimed(), pytest.raises(LibraryInUseError, match="does not listen yet"):
        library.remove()


def test_looking_for_the_process_that_serves_hinders_none(
    libraries: Path, folder: Callable[[str], Path]
) -> None:
    library = library_of([folder("photos")], "org/clip", libraries)
    library.save()
    assert library.served_at() is None
    assert not (library.place / "served").exists()  # nothing is written to look
    with (library.place / "served").open("w", encoding="utf-8") as file:
        fcntl.flock(file, fcntl.LOCK_SH)  # another process looks, too
        assert library.served_at() is None
        look = threading.Timer(0.05, fcntl.flock, (file, fcntl.LOCK_UN))
        look.start()
        with library.claimed() as claim:
            claim.announce("http://127.0.0.1:8000")
            assert library.served_at() == "http://127.0.0.1:8000"
        look.join()
    assert library.served_at() is None


def test_removing_a_library_keeps_photos_and_an_index_elsewhere(
    libraries: Path, folder: Callable[[str], Path]
) -> None:
    photos, index = folder("photos"), folder("index")
    library = library_of([photos], "org/clip", libraries, index)
    library.save()
    library.remove()
    assert all_libraries(libraries) == ([], {}) and list(libraries.iterdir()) == []
    assert photos.is_dir() and index.is_dir()


def test_the_place_of_libraries(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    assert libraries_folder() == user_data_path("aladin-search") / "libraries"
    if sys.platform == "linux":
        assert libraries_folder() == tmp_path / "aladin-search" / "libraries"
        monkeypatch.delenv("XDG_DATA_HOME")
        share = tmp_path / "home" / ".local" / "share"
        assert libraries_folder() == share / "aladin-search" / "libraries"
    monkeypatch.setenv("ALADIN_LIBRARIES_DIR", "~/mine")
    assert libraries_folder() == tmp_path / "home" / "mine"

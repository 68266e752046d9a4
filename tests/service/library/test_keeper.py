"""The index of a library: begun with the first photos, and kept in the state of the folders."""

from __future__ import annotations

import os
import shutil
import threading
from collections.abc import Callable, Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

import aladin_search
import aladin_service.library.keeper
from aladin_index.format.layout import live_generation
from aladin_network.types import NullProgress
from aladin_service.library.keeper import KeepPlan, keep
from tests.service.conftest import make_photo


@pytest.fixture(autouse=True)
def few_first_photos(monkeypatch: pytest.MonkeyPatch) -> None:
    """Begin with four photos, and leave the priority of the tests as it is."""
    monkeypatch.setattr(aladin_service.library.keeper, "FIRST_PHOTOS", 4)
    monkeypatch.setattr(os, "nice", lambda _: 0)


@contextmanager
def silent() -> Generator[NullProgress]:
    yield NullProgress()


def kept(
    plan: KeepPlan, show: Callable[..., Any] = silent, stop: threading.Event | None = None
) -> None:
    keep(plan, show, lambda _: None, stop or threading.Event())


@pytest.fixture
def photos(tmp_path: Path) -> Path:
    for number in range(9):
        folder = tmp_path / "photos" / ("early" if number < 5 else "late")
        folder.mkdir(parents=True, exist_ok=True)
        make_photo(number).save(folder / f"{number}.png")
    return tmp_path / "photos"


def plan(tmp_path: Path, checkpoint: Path | None, *folders: Path, watch: bool = False) -> KeepPlan:
    index = tmp_path / "index"
    return KeepPlan(index=index, checkpoint=checkpoint, folders=folders, watch=watch)


def ids(tmp_path: Path) -> list[str]:
    with aladin_search.open(tmp_path / "index") as index:
        return sorted(index.search("a red circle", k=100).ids)


def test_the_first_photos_are_live_before_the_others(
    photos: Path, tiny_checkpoint: Path, tmp_path: Path
) -> None:
    seen: list[int] = []

    @contextmanager
    def noting() -> Generator[NullProgress]:
        seen.append(len(ids(tmp_path)) if (tmp_path / "index" / "CURRENT").exists() else 0)
        yield NullProgress()

    kept(plan(tmp_path, tiny_checkpoint, photos), noting)
    assert seen == [0, 4]
    assert ids(tmp_path) == sorted(
        [*(f"early/{n}.png" for n in range(5)), *(f"late/{n}.png" for n in range(5, 9))]
    )

    (photos / "late" / "8.png").unlink()
    shutil.move(photos / "early" / "0.png", photos / "late" / "moved.png")
    kept(plan(tmp_path, None, photos))
    found = ids(tmp_path)
    assert len(found) == 8 and "late/moved.png" in found and "late/8.png" not in found


def test_several_folders_with_the_same_names(
    photos: Path, tiny_checkpoint: Path, tmp_path: Path
) -> None:
    kept(plan(tmp_path, tiny_checkpoint, photos / "early", photos / "late"))
    make_photo(20).save(photos / "late" / "0.png")
    kept(plan(tmp_path, None, photos / "early", photos / "late"))
    assert ids(tmp_path) == [*(f"{n}.png" for n in range(9)), "late/0.png"]


def test_unusable_photos_at_the_beginning(
    photos: Path, tiny_checkpoint: Path, tmp_path: Path
) -> None:
    for number in range(5):
        (photos / "early" / f"{number}.png").write_bytes(b"no photo")
    kept(plan(tmp_path, tiny_checkpoint, photos))
    assert ids(tmp_path) == [f"late/{number}.png" for number in range(5, 9)]


def test_changes_are_followed_until_the_end(
    photos: Path, tiny_checkpoint: Path, tmp_path: Path
) -> None:
    stop = threading.Event()
    watching = threading.Thread(
        target=kept, args=(plan(tmp_path, tiny_checkpoint, photos, watch=True), silent, stop)
    )
    watching.start()
    try:
        wait_for(tmp_path, 9)
        (photos / "late" / "8.png").unlink()
        wait_for(tmp_path, 8)
        assert live_generation(tmp_path / "index") == 1
    finally:
        stop.set()
        watching.join(60)
    assert not watching.is_alive()


def wait_for(tmp_path: Path, count: int) -> None:
    pause = threading.Event()
    for _ in range(600):
        if (tmp_path / "index" / "CURRENT").exists() and len(ids(tmp_path)) == count:
            return
        pause.wait(0.1)
    pytest.fail(f"the index has not come to {count} photos")

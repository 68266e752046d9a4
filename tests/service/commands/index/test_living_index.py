"""``aladin index add | delete | compact | rollback``, one after the other."""

from __future__ import annotations

import json
import os
import shutil
import signal
import threading
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from aladin_service.cli import app
from aladin_service.library.watching import FolderWatch


@pytest.fixture
def index(index_folder: Path, tmp_path: Path) -> Path:
    """An index that a test may change."""
    return Path(shutil.copytree(index_folder, tmp_path / "index"))


@pytest.fixture
def more(tmp_path: Path, data_file: Path) -> Path:
    """A data set of two photos, one of them in the index already by its id."""
    lines = [
        {"image": str(data_file.parent / "photo-1.png"), "captions": ["new"], "id": "new"},
        {"image": str(data_file.parent / "photo-2.png"), "captions": ["other"], "id": "plain"},
    ]
    file = tmp_path / "more.jsonl"
    file.write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")
    return file


def run(*words: object, code: int = 0) -> str:
    done = CliRunner().invoke(app, [str(word) for word in words])
    assert done.exit_code == code, done.output
    return done.stdout if code == 0 else done.stderr


def hits(index: Path) -> dict[str, Any]:
    answer = json.loads(run("search", index, "a red dog", "--json", "-k", 99))
    return {hit["id"]: hit["text"] for hit in answer["hits"]}


def test_a_day_in_the_life_of_an_index(index: Path, more: Path, tmp_path: Path) -> None:
    before = hits(index)
    says = run("index", "add", index, "--images", more, code=2)
    assert "'plain'" in says
    assert hits(index) == before  # "new" comes before it in the file
    says = run("index", "add", index, "--images", more, "--on-duplicate", "skip")
    assert says == f"{index}: images: 1 added, 0 replaced, 1 already there, 0 skipped\n"
    assert hits(index) == before | {"new": "new"}
    says = run(
        "index", "add", index, "--images", more, "--texts", more, "--on_duplicate", "replace"
    )
    assert "images: 0 added, 2 replaced, 0 already there" in says
    assert "texts: 1 added, 1 replaced, 0 already there" in says
    assert hits(index) == before | {"new": "new", "plain": "other"}

    assert "'nobody'" in run(
        "index", "delete", index, "--target", "images", "new", "nobody", code=2
    )
    assert "new" in hits(index)
    (tmp_path / "ids").write_text("new\nnobody\n\n", encoding="utf-8")
    says = run(
        "index", "delete", index, "--target", "images", "--ids", tmp_path / "ids", "plain",
        "--ignore-missing",
    )  # fmt: skip
    assert says == f"{index}: images: 2 deleted, 1 were not there\n"
    left = hits(index)
    assert left.keys() == before.keys() - {"plain"}

    says = run("index", "compact", index)
    assert says.startswith(f"{index}: generation 2, 5 images, 13 texts\n")
    assert "2 added and 2 removed items folded in, 0 changes came meanwhile" in says
    assert hits(index) == left
    run("index", "delete", index, "--target", "images", "ünïcode")
    says = run("index", "rollback", index)
    assert "generation 1 is live again: 5 images, 13 texts" in says
    assert "undone: generation 2 and its changes: 0 images added, 1 removed" in says
    gone = "generation 2, its changes: 0 images added, 1 removed"
    assert f"  no longer live, and removed by the next compaction: {gone}\n" in says
    assert hits(index) == left
    compacted = CliRunner().invoke(app, ["index", "compact", str(index), "--keep", "0"])
    assert compacted.stdout.startswith(f"{index}: generation 3")
    assert (
        "generation 2 was rolled back; it is removed at the end of this compaction, and with it "
        "its changes: 0 images added, 1 removed"
    ) in compacted.stderr
    assert (
        "  with generation 2 went changes that no other has: 0 images added, 1 removed\n"
    ) in compacted.stdout
    assert "with generation 1 went" not in compacted.stdout
    assert hits(index) == left
    run("index", "verify", index)
    assert "no generation before 3" in run("index", "rollback", index, code=2)


def test_a_build_says_what_it_leaves_behind(index: Path, data_file: Path) -> None:
    words = ["build", "--model", index / "model", "--images", data_file, "--out", index]
    build = ["index", *map(str, words), "--replace"]
    assert "not part of the new one" not in CliRunner().invoke(app, build).stderr
    run("index", "delete", index, "--target", "images", "plain")
    done = CliRunner().invoke(app, build)
    assert done.exit_code == 0
    assert "added to generation 2 and deleted from it is not part of the new one" in done.stderr
    assert f"`aladin index rollback {index} --to 2`" in done.stderr
    assert "plain" in hits(index)
    run("index", "rollback", index, "--to", 2)
    assert "plain" not in hits(index)


def test_missing_items_and_sources_are_named(index: Path, tmp_path: Path) -> None:
    assert "--images, --texts or both" in run("index", "add", index, code=2)
    assert "at least one ID" in run("index", "delete", index, "--target", "texts", code=2)
    empty = tmp_path / "empty"
    empty.mkdir()
    for words in (
        ("delete", empty, "--target", "texts", "a"),
        ("compact", empty),
        ("rollback", empty),
    ):
        assert "no index here" in run("index", *words, code=2)


@pytest.mark.parametrize("collection", ["--images", "--texts"])
def test_metadata_that_is_too_large_is_named_and_may_be_allowed(
    index: Path, data_file: Path, tmp_path: Path, collection: str
) -> None:
    photo = str(data_file.parent / "photo-1.png")
    lines = [
        {"image": photo, "captions": ["new"], "id": "new"},
        {"image": photo, "captions": ["wide"], "id": "wide", "metadata": {"notes": "x" * 70_000}},
    ]
    file = tmp_path / "wide.jsonl"
    file.write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")
    for words in (("add", index), ("build", "--model", index / "model", "--out", tmp_path / "out")):
        says = run("index", *words, collection, file, "--strict", code=2)
        assert "'wide" in says
        assert "metadata: expected at most 65536 bytes of JSON, got 70013" in " ".join(says.split())
        done = run("index", *words, collection, file, "--max-metadata", "100 KB")
        assert "2 added" in done or words[0] == "build"


def test_an_index_follows_a_folder(index: Path, data_file: Path, tmp_path: Path) -> None:
    before = hits(index)
    folder = tmp_path / "photos"
    folder.mkdir()
    shutil.copy(data_file.parent / "photo-1.png", folder / "first.png")
    (folder / "broken.png").write_bytes(b"no photo")
    done = CliRunner().invoke(app, ["index", "sync", str(index), str(folder), "--dry-run"])
    assert "images: 2 added, 0 changed, 0 moved, 0 deleted, 0 unchanged" in done.stdout
    assert done.stdout.endswith("0 skipped (dry run)\n")
    done = CliRunner().invoke(app, ["index", "sync", str(index), str(folder), "--json"])
    assert "skipped broken.png: " in done.stderr
    facts = json.loads(done.stdout)
    assert (facts["added"], facts["encoded"]) == (["first.png"], 1)
    assert [each["id"] for each in facts["skipped"]] == ["broken.png"]
    assert hits(index).keys() == before.keys() | {"first.png"}
    (folder / "first.png").unlink()
    (folder / "broken.png").unlink()
    assert "`aladin index sync --allow-empty` removes them" in run(
        "index", "sync", index, folder, code=2
    )
    says = run("index", "sync", index, folder, "--allow-empty")
    assert "images: 0 added, 0 changed, 0 moved, 1 deleted, 0 unchanged, 0 skipped\n" in says
    assert hits(index) == before


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_watching_ends_with_a_signal(
    index: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: signal.Signals
) -> None:
    def run_until_stopped(self: FolderWatch, stop: threading.Event) -> None:
        del self
        os.kill(os.getpid(), number)
        assert stop.wait(10)

    before = signal.getsignal(number)
    monkeypatch.setattr(FolderWatch, "run", run_until_stopped)
    assert run("index", "sync", index, tmp_path, "--watch") == ""
    assert signal.getsignal(number) is before
    says = run("index", "sync", index, tmp_path, "--watch", "--dry-run", code=2)
    assert "--watch: expected neither --dry-run nor --allow-empty" in says
    assert "--poll: expected --watch" in run("index", "sync", index, tmp_path, "--poll", 1, code=2)

"""``aladin index add | delete | compact | rollback | sync``, one after the other."""

from __future__ import annotations

import os
import shutil
import signal
import threading
from pathlib import Path

import pytest

from aladin_service.library.watching import FolderWatch
from tests.service.commands.conftest import aladin, aladin_json, write_lines


def hits(index: Path) -> dict[str, str]:
    return {hit["id"]: hit["text"] for hit in aladin_json("search", index, "dog", "-k", 99)["hits"]}


def test_a_day_in_the_life_of_an_index(index: Path, data_file: Path, tmp_path: Path) -> None:
    def run(command: str, *words: object) -> str:
        return aladin("index", command, index, *words).stdout

    def refused(command: str, *words: object) -> str:
        return aladin("index", command, index, *words, code=2).stderr

    photos, images, before = data_file.parent, ["--target", "images"], hits(index)
    more = write_lines(
        tmp_path / "more.jsonl",
        {"image": str(photos / "photo-1.png"), "captions": ["new"], "id": "new"},
        {"image": str(photos / "photo-2.png"), "captions": ["other"], "id": "plain"},
    )
    assert "'plain'" in refused("add", "--images", more)
    assert hits(index) == before  # "new" comes before it in the file
    says = run("add", "--images", more, "--on-duplicate", "skip")
    assert says == f"{index}: images: 1 added, 0 replaced, 1 already there, 0 skipped\n"
    assert hits(index) == before | {"new": "new"}
    says = run("add", "--images", more, "--texts", more, "--on_duplicate", "replace")
    assert "images: 0 added, 2 replaced, 0 already there" in says
    assert "texts: 1 added, 1 replaced, 0 already there" in says
    assert hits(index) == before | {"new": "new", "plain": "other"}

    assert "'nobody'" in refused("delete", *images, "new", "nobody")
    assert "new" in hits(index)
    (tmp_path / "ids").write_text("new\nnobody\n\n", encoding="utf-8")
    says = run("delete", *images, "--ids", tmp_path / "ids", "plain", "--ignore-missing")
    assert says == f"{index}: images: 2 deleted, 1 were not there\n"
    left = hits(index)
    assert left.keys() == before.keys() - {"plain"}

    says = run("compact")
    assert says.startswith(f"{index}: generation 2, 5 images, 13 texts\n")
    assert "2 added and 2 removed items folded in, 0 changes came meanwhile" in says
    run("delete", *images, "ünïcode")
    says = run("rollback")
    gone = "its changes: 0 images added, 1 removed"
    assert "generation 1 is live again: 5 images, 13 texts" in says
    assert "undone: generation 2 and its changes: 0 images added, 1 removed" in says
    assert f"  no longer live, and removed by the next compaction: generation 2, {gone}\n" in says
    assert hits(index) == left
    compacted = aladin("index", "compact", index, "--keep", "0")
    assert compacted.stdout.startswith(f"{index}: generation 3")
    assert "generation 2 was rolled back; it is removed" in compacted.stderr
    assert gone in compacted.stderr
    assert "  with generation 2 went changes that no other has: 0 images" in compacted.stdout
    assert "with generation 1 went" not in compacted.stdout
    assert hits(index) == left
    run("verify")
    assert "no generation before 3" in refused("rollback")


def test_a_build_says_what_it_leaves_behind(index: Path, data_file: Path) -> None:
    words = ["--model", index / "model", "--images", data_file, "--out", index, "--replace"]
    assert "not part of the new one" not in aladin("index", "build", *words).stderr
    aladin("index", "delete", index, "--target", "images", "plain")
    said = aladin("index", "build", *words).stderr
    assert "added to generation 2 and deleted from it is not part of the new one" in said
    assert f"`aladin index rollback {index} --to 2`" in said
    assert "plain" in hits(index)
    aladin("index", "rollback", index, "--to", 2)
    assert "plain" not in hits(index)


@pytest.mark.parametrize("collection", ["--images", "--texts"])
def test_metadata_that_is_too_large_is_named_and_may_be_allowed(
    index: Path, data_file: Path, tmp_path: Path, collection: str
) -> None:
    new = {"image": str(data_file.parent / "photo-1.png"), "captions": ["new"], "id": "new"}
    wide = new | {"id": "wide", "metadata": {"notes": "x" * 70_000}}
    file = write_lines(tmp_path / "wide.jsonl", new, wide)
    for words in (("add", index), ("build", "--model", index / "model", "--out", tmp_path / "out")):
        said = aladin("index", *words, collection, file, "--strict", code=2).stderr
        assert "'wide" in said
        assert "metadata: expected at most 65536 bytes of JSON, got 70013" in " ".join(said.split())
        done = aladin("index", *words, collection, file, "--max-metadata", "100 KB").stdout
        assert "2 added" in done or words[0] == "build"


def test_an_index_follows_a_folder(index: Path, data_file: Path, tmp_path: Path) -> None:
    before, folder = hits(index), tmp_path / "photos"
    folder.mkdir()
    shutil.copy(data_file.parent / "photo-1.png", folder / "first.png")
    (folder / "broken.png").write_bytes(b"no photo")
    sync = ["index", "sync", index, folder]
    says = aladin(*sync, "--dry-run").stdout
    assert "images: 2 added, 0 changed, 0 moved, 0 deleted, 0 unchanged" in says
    assert says.endswith("0 skipped (dry run)\n") and hits(index) == before
    facts = aladin_json(*sync)
    assert (facts["added"], facts["encoded"]) == (["first.png"], 1)
    assert [each["id"] for each in facts["skipped"]] == ["broken.png"]
    assert hits(index).keys() == before.keys() | {"first.png"}
    for name in ("first.png", "broken.png"):
        (folder / name).unlink()
    says = f"`aladin index sync INDEX {folder} --allow-empty` removes them"
    assert says in aladin(*sync, code=2).stderr
    says = aladin(*sync, "--allow-empty").stdout
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
    assert aladin("index", "sync", index, tmp_path, "--watch").stdout == ""
    assert signal.getsignal(number) is before

"""``--device``, ``--first-stage`` and ``--warm``."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from typer.testing import CliRunner

from aladin_index.format import disk as file_pages
from aladin_service.cli import app
from aladin_service.work.hot_swap import LiveIndex, Opening


@pytest.fixture
def no_card(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)


def search(index: Path, *options: str) -> tuple[list[tuple[str, float]], str]:
    """Return ids and scores, and what was said."""
    command = ["search", str(index), "two dogs run", "--json", *options]
    result = CliRunner().invoke(app, command)
    assert result.exit_code == 0, result.stderr
    hits = json.loads(result.stdout)["hits"]
    return [(hit["id"], hit["score"]) for hit in hits], result.stderr


@pytest.mark.usefixtures("no_card")
def test_every_engine_answers_alike(index_folder: Path) -> None:
    expected, _ = search(index_folder)
    assert expected
    for options in (
        ["--first-stage", "torch"],
        ["--device", "auto"],
        ["--device", "auto", "--first-stage", "torch"],
    ):
        hits, said = search(index_folder, *options)
        assert hits == expected
        assert "processor" not in said


@pytest.mark.usefixtures("no_card")
def test_a_card_that_is_asked_for_and_missing_is_one_warning(
    index_folder: Path, caplog: pytest.LogCaptureFixture
) -> None:
    expected, _ = search(index_folder)
    hits, _ = search(index_folder, "--device", "cuda")
    assert hits == expected
    assert caplog.messages == ["searching on the CPU: torch finds no CUDA device"]


def test_warm_reads_every_generation_ahead(
    index_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    read: list[Path] = []
    monkeypatch.setattr("aladin_index.generations.reader.read_file_ahead", read.append)
    cold = LiveIndex(index_folder, Opening())
    cold.open()
    cold.close()
    assert read == []
    live = LiveIndex(index_folder, Opening(warm=True))
    live.open()
    generation = index_folder / "generations" / "000001"
    manifest = live.searcher().index.manifest
    assert read == [generation / name for name in manifest.files]
    assert {path.name for path in read} >= {"ann.faiss", "embeddings.npy", "tokens.npy"}
    live.close()


def test_files_are_read_ahead_by_the_system(
    index_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not hasattr(file_pages.os, "posix_fadvise"):
        pytest.skip("this system cannot be asked")
    asked: list[tuple[int, int, int]] = []
    monkeypatch.setattr(file_pages.os, "posix_fadvise", lambda _, *how: asked.append(how))
    file_pages.read_file_ahead(index_folder / "CURRENT")
    assert asked == [(0, 0, file_pages.os.POSIX_FADV_WILLNEED)]

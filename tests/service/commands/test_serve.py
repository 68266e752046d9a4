"""``aladin serve`` and ``mcp`` where they cannot serve; the rest is in ../http."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from aladin_network import errors
from tests.service.commands.conftest import aladin


def test_a_damaged_index_or_engine_file_ends_with_one(index: Path, tmp_path: Path) -> None:
    weights, engine = index / "model" / "model.safetensors", tmp_path / "engine.json"
    weights.write_bytes(weights.read_bytes()[:-1])
    engine.write_text("{")
    for place, file in ((index, weights), (tmp_path, engine)):
        result = aladin("serve", place, "--port", "0", code=1)
        assert file.name in result.stderr.splitlines()[-1]


def test_an_impossible_setting_is_named(
    index_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ALADIN_WORKERS", "none")
    said = aladin("serve", index_folder, "--port", "0", code=2).stderr
    assert "ALADIN_WORKERS=none" in said


def test_agents_without_their_package_are_told_the_extra(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(errors, "find_spec", lambda name: None)  # noqa: ARG005
    said = aladin("mcp", tmp_path, code=2).stderr
    line = f"{sys.executable} -m pip install 'aladin-search[mcp]'"
    assert f"aladin mcp needs the package mcp: {line}\n" in said


@pytest.mark.parametrize(
    ("device", "of_faiss", "of_torch"),
    [("auto", 1, 0), ("auto", 1, 1), ("auto", 0, 0), ("cpu", 1, 0)],
)
def test_a_service_whose_faiss_is_for_gpus_says_at_once_that_there_is_none(
    index_folder: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    device: str,
    of_faiss: int,
    of_torch: int,
) -> None:
    told: list[list[str]] = []
    monkeypatch.setattr("aladin_index.devices.faiss_card.supports_cards", lambda: bool(of_faiss))
    monkeypatch.setattr("torch.cuda.is_available", lambda: bool(of_torch))
    # Before anything is opened or waited for.
    monkeypatch.setattr(
        "aladin_service.http.server.serve_index", lambda *_, **__: told.append(caplog.messages)
    )
    aladin("serve", index_folder, "--port", "0", "--wait", "--device", device)
    ((*messages,),) = told
    is_told = (device, of_faiss, of_torch) == ("auto", 1, 0)
    told_of = "searching on the CPU: FAISS for GPUs is"
    assert [each.startswith(told_of) for each in messages] == [True] * is_told

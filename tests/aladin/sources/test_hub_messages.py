"""Warnings of the hub's library: each once, and by this project's handlers."""

from __future__ import annotations

import logging
from collections.abc import Callable
from pathlib import Path

import pytest

from aladin_network.conversion.named_models import named_model
from aladin_network.conversion.towers import TowersOptions, convert_towers
from aladin_network.detectors.objects import load_objects
from aladin_network.encoders.hf_text import load_tokenizer
from aladin_network.encoders.pretrained import load_tower
from aladin_network.encoders.vision_tower import read_preprocessing
from aladin_network.errors import CheckpointError
from aladin_network.sources.hub_messages import missing_folder, one_hub_warning

LIBRARY = logging.getLogger("huggingface_hub.utils._http")


def test_a_warning_is_logged_once_and_attempts_are_not(
    caplog: pytest.LogCaptureFixture, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(ZeroDivisionError), one_hub_warning():
        for attempt in range(1, 4):
            LIBRARY.warning("'no connection' thrown while requesting\n HEAD http://hub/a")
            LIBRARY.warning("Retrying in %ss [Retry %s/5].", attempt, attempt)
        LIBRARY.warning("'no connection' thrown while requesting HEAD http://hub/b")
        raise ZeroDivisionError
    assert [(record.name, record.getMessage()) for record in caplog.records] == [
        (
            "aladin_network.sources.hub_messages",
            f"the hub's library: 'no connection' thrown while requesting HEAD http://hub/{name}",
        )
        for name in "ab"
    ]
    assert "requesting\n" not in capsys.readouterr().err  # as the library writes it
    LIBRARY.warning("something else")  # outside it logs as it did
    assert caplog.records[-1].name == LIBRARY.name


def test_a_model_that_is_looked_for_on_a_hub_that_cannot_be_reached(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def unreachable(*_: object, **__: object) -> str:
        for _attempt in range(6):
            LIBRARY.warning("'no connection' thrown while requesting HEAD http://hub/a")
        raise OSError("no connection")

    monkeypatch.setattr("huggingface_hub.HfApi.model_info", unreachable)
    with pytest.raises(CheckpointError, match="the hub cannot be reached"):
        named_model("someone/nothing", lambda: tmp_path)
    warnings = [record for record in caplog.records if record.levelno == logging.WARNING]
    assert len(warnings) == 1


DOORS: dict[str, Callable[[str, Path], object]] = {
    "tower": lambda name, _: load_tower(name, "vision"),
    "dual tower": lambda name, _: load_tower(name, "text", pooled=True),
    "tokenizer": lambda name, _: load_tokenizer(name),
    "preprocessing": lambda name, _: read_preprocessing(name),
    "detector": lambda name, _: load_objects(name, {}, "cpu"),
    "named model": lambda name, out: named_model(name, lambda: out),
    "pair": lambda name, out: convert_towers(name, out, TowersOptions()),
}


@pytest.mark.parametrize("door", DOORS)
def test_a_folder_that_is_not_there_is_not_asked_for_on_the_hub(
    door: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def connect(*address: object) -> None:
        raise AssertionError(f"the hub was asked: {address}")

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", False)
    monkeypatch.setattr("socket.getaddrinfo", connect)
    for name, hint in (
        ("encoders/all-MiniLM-L6-v2", "here, training/FLICKR8K.md says how to make it"),
        ("models/clip", "here, training/BACKBONES.md says how to make it"),
        ("./clip", ""),
        ("../a/clip", ""),
        ("runs/own/checkpoint", ""),
        (f"{tmp_path}/clip", ""),
    ):
        with pytest.raises(CheckpointError, match=f"no such folder ?{hint}"):
            DOORS[door](name, tmp_path / "out")
    assert list(tmp_path.iterdir()) == []


def test_names_that_the_hub_may_know_are_left_to_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "encoders" / "own").mkdir(parents=True)
    (tmp_path / "models").mkdir()
    (tmp_path / "models" / "file").touch()
    for name in ("openai/clip-vit-base-patch32", "bert-base-uncased", "encoders/own", "a/b@v1"):
        assert missing_folder(name) is None
    assert str(missing_folder("models/file")).startswith("a file, expected a folder")

"""Whether a checkpoint's alignment was trained, and what its recipe tells of its use."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from aladin_network.checkpoint import load_checkpoint, save_checkpoint
from aladin_network.heads.trained import (
    DRAWN_ALONE,
    UNTRAINED,
    read_alignment_trained,
    read_pretrained_name,
    read_untrained,
    trains_alignment,
    untrained_reason,
    useless_on_photos,
)
from aladin_network.model import AladinModel

RECIPE: dict[str, Any] = {
    "stage": [
        {"name": "warm", "tasks": {"matching": {}}},
        {"name": "teacher", "tasks": {"alignment_boosting:relative": {}}},
        {"name": "student", "tasks": {"distillation": {}}},
        {"name": "aside", "tasks": {"matching": {}}, "start": "warm"},
        {"name": "again", "tasks": {"matching": {}}, "start": "teacher", "reset": ["alignment"]},
        {"name": "anew", "tasks": {"matching": {}}, "start": "teacher", "reset": ["text_trunk"]},
        {"name": "after", "tasks": {"matching": {}}, "start": "anew"},
    ]
}


@pytest.mark.parametrize(
    ("stage", "before", "trained"),
    [
        ("warm", False, False),
        ("warm", True, True),
        ("teacher", False, True),
        ("student", False, True),
        ("aside", False, False),
        ("aside", True, True),
        ("again", True, False),
        ("anew", True, False),
        ("after", True, False),
        ("unknown", False, False),
    ],
)
def test_a_stage_continues_what_an_earlier_one_trained(
    stage: str, before: bool, trained: bool
) -> None:
    assert trains_alignment(RECIPE, stage, before=before) is trained


def test_a_checkpoint_keeps_what_was_recorded(
    build_tiny: Callable[..., AladinModel], tmp_path: Path
) -> None:
    model = build_tiny()
    for recorded in (True, False):
        save_checkpoint(tmp_path / "c", model, alignment_trained=recorded)
        assert load_checkpoint(tmp_path / "c").alignment_trained is recorded
        assert read_alignment_trained(tmp_path / "c") is recorded
    assert read_alignment_trained(tmp_path / "nowhere")


def test_a_pretrained_model_is_named_without_the_folders_of_this_machine(tmp_path: Path) -> None:
    for source, name in (
        ("Xenova/clip-vit-base-patch32:fp16", "Xenova/clip-vit-base-patch32:fp16"),
        ("/home/me/models/clip:fp16", "clip:fp16"),
        (None, None),
        (3, None),
    ):
        config = {"model": {"image_encoder": {"name": "graph", "source": source}}}
        (tmp_path / "config.json").write_text(json.dumps(config))
        assert read_pretrained_name(tmp_path) == name
    assert read_pretrained_name(tmp_path / "nowhere") is None


def converted(**source: str) -> str:
    return json.dumps({"converted_from": source, "seed": 0})


RELEASED = json.dumps({"converted_from": {"file": "aladin.pth"}, "seed": None})
DEMO = {"name": "demo", "data": {"source": "/home/me/aladin-demo/data/captions.jsonl"}}


@pytest.mark.parametrize(
    ("recipe", "stage", "untrained", "useless"),
    [
        (converted(vision="clip", text="clip"), "convert", None, None),
        (converted(vision="dino", text="bert"), "convert", UNTRAINED, UNTRAINED),
        (converted(file="oscar.bin"), "convert", UNTRAINED, UNTRAINED),
        (RELEASED, "convert", None, None),
        (json.dumps({"name": "mine", "data": {"source": "x.jsonl"}}), "student", None, None),
        (json.dumps(DEMO), "words", None, DRAWN_ALONE),
        (json.dumps(DEMO | {"data": {"source": "photos.jsonl"}}), "words", None, None),
        ("", "", None, None),
        ("no JSON", "convert", None, None),
        ("[]", "convert", None, None),
    ],
)
def test_provenance_tells_a_network_whose_order_is_random(
    recipe: str, stage: str, untrained: str | None, useless: str | None, tmp_path: Path
) -> None:
    assert untrained_reason(recipe, stage) == untrained
    assert useless_on_photos(recipe, stage) == useless
    config = {"provenance": {"recipe": recipe, "stage": stage}}
    (tmp_path / "config.json").write_text(json.dumps(config), encoding="utf-8")
    assert read_untrained(tmp_path) == untrained
    assert read_untrained(tmp_path / "missing") is None

"""Settings that a recipe refuses: one table of what is set, and of what the message says."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from aladin_network.errors import ConfigError
from aladin_training.config.recipe import load_recipe
from aladin_training.tasks.joint import build_tasks

QUINTUPLET = {"matching_quintuplet": {"loss": "offline_quintuplet"}}
BOOSTING = {"matching_boosting": {"loss": "boosting"}}
STREAM = {"data.stream.shuffle": 64}
CACHED = {"mode": "last", "layers": 1, "cached": True}


def of_stage(**settings: Any) -> dict[str, Any]:
    return {f"stage.joint.{key}": value for key, value in settings.items()}


def tune(**settings: Any) -> dict[str, Any]:
    return of_stage(**{"tune.image_encoder": settings})


def anchors(scenario: str, **settings: Any) -> dict[str, Any]:
    return of_stage(anchors={"scenario": scenario, **settings})


REFUSED: list[tuple[dict[str, Any], str]] = [
    ({"sede": 3}, "sede: unknown key"),
    ({"model.matching.depth": 3}, "model.matching.depth: unknown key"),
    ({"threads": 0}, "threads is 0, expected at least 1"),
    ({"final": "nowhere"}, "final 'nowhere' is not a stage"),
    ({"stage": []}, r"a recipe needs at least one \[\[stage\]\]"),
    ({"stage.nowhere.epochs": 1}, "no stage named 'nowhere'"),
    ({"stage.student.name": "joint"}, "two stages are named 'joint'"),
    ({"stage.student.name": "random"}, "'random' is a reserved stage name"),
    # the data
    ({"data.source": ""}, "data: source: expected a data set, got an empty string"),
    ({"data.selection": -0.1}, "at least 0 and less than 1, got -0.1"),
    ({"data.selection": 1}, "at least 0 and less than 1, got 1"),
    ({"data.region_labels": "x"}, "region_labels: expected regions as well"),
    ({"data.regions": "x", **STREAM}, "a stream shows the photos of its tars, not ready-made"),
    ({"data.regions": "x", "data.mirror": True}, "mirror and crops apply to photos, not to"),
    ({"data.regions": "x", "data.crops": 2, "data.mirror": False}, "mirror and crops apply to"),
    ({"data.stream.shuffle": 0}, "data.stream: shuffle is 0, expected at least 1"),
    ({"data.folds": 3, "data.fold": 3}, "fold: expected 0 to folds - 1, got 3 of 3"),
    ({"data.folds": 0}, "fold: expected 0 to folds - 1, got 0 of 0"),
    ({"data.folds": 3, **STREAM}, "folds deal the photos of two splits of one list"),
    ({"data.folds": 3, "data.validation_source": "x"}, "folds deal the photos of two splits"),
    ({"data.selection": 0.4, **STREAM}, "selection needs a list of the photos"),
    (of_stage(share=0.5) | STREAM, "stage 'joint': a share of the photos needs a list of them"),
    (tune(**CACHED) | STREAM, "stage 'joint': cached states need a list of the photos"),
    (
        {"stage.student.tasks": QUINTUPLET, "stage.student.offline.stage": "joint", **STREAM},
        "stage 'student': offline negatives need photos in any order",
    ),
    # a stage
    (of_stage(epochs=0), "stage 'joint': epochs is 0, expected at least 1"),
    (of_stage(epochs="two"), "stage.0.epochs: .*valid integer"),
    (of_stage(captions_per_photo=0), "captions_per_photo is 0, expected at least 1 or null"),
    (of_stage(max_steps=0), "max_steps is 0, expected at least 1 or null"),
    (of_stage(share=0), "share is 0.0, expected above 0 and at most 1"),
    (of_stage(clip_norm=0), "lr and clip_norm must be above 0"),
    (of_stage(short_captions=1.5), "short_captions is 1.5, expected 0 to 1"),
    (of_stage(short_captions=-0.1), "short_captions is -0.1, expected 0 to 1"),
    (of_stage(new_crops=1.5), "new_crops is 1.5, expected 0 to 1"),
    (of_stage(average_decay=1.5), r"average_decay is 1.5, expected \[0, 1\)"),
    (of_stage(start="nowhere"), "start 'nowhere' is not an earlier stage"),
    (of_stage(teacher="nowhere"), "teacher 'nowhere' is not an earlier stage"),
    (
        {"model.text_encoder.source": "encoders/words", **of_stage(reset=["text_encoder"])},
        "a text encoder with pretrained weights cannot start from random ones",
    ),
    # its tasks
    (of_stage(tasks={}), "expected at least one task"),
    (of_stage(tasks={"matchin": {"loss": "triplet"}}), "unknown task 'matchin', known are"),
    (
        of_stage(tasks={"matching": {"loss": "triplet", "after_epochs": 2}}),
        "at least one task must begin with the stage",
    ),
    (
        of_stage(**{"tasks.matching.loss": "tripel"}),
        "unknown loss .tripel., expected MODULE:",
    ),
    (of_stage(**{"tasks.matching.loss": "listnet"}), "loss 'listnet' takes student_scores, teach"),
    (of_stage(**{"tasks.matching.options.margn": 1}), "margn"),
    (
        of_stage(**{"tasks.alignment_distillation.loss": "listnet"}),
        "alignment_distillation needs a teacher",
    ),
    (of_stage(**{"tasks.matching_boosting.loss": "boosting"}), "boosting or imitation and anchors"),
    (of_stage(tasks=QUINTUPLET), "quintuplet tasks and offline negatives require each other"),
    (
        of_stage(tasks=QUINTUPLET, captions_per_photo=2, offline={"file": "f"}),
        "offline negatives require one caption for each photo",
    ),
    (of_stage(offline={"stage": "x", "file": "f"}), "give either a stage or a file"),
    (of_stage(offline={"stage": "x", "miner": "m"}), "a miner requires a file"),
    (of_stage(offline={"stage": "x", "content": "m"}), "content is that of a file's lists"),
    (of_stage(offline={"file": "f", "num_texts": 0}), "num_texts and num_images must be at least"),
    # its anchors
    (anchors("online", stages=["random"], checkpoints=["x"]), "online scenario takes no checkpoin"),
    (anchors("momentum", mutual=True), "only online anchors learn mutually"),
    (anchors("momentum", stages=["x"]), "momentum anchors follow the target; give no stages"),
    (anchors("momentum", decays=[]), r"decays are \(\), expected values in \[0, 1\]"),
    (anchors("momentum", decays=[1.5]), r"decays are \(1.5,\), expected values in \[0, 1\]"),
    (anchors("offline", checkpoints=["x"], model_ids=["a", "b"]), "as many model_ids as checkpoi"),
    (
        of_stage(tasks=BOOSTING) | anchors("offline", stages=["nowhere"]),
        "'nowhere' is not an earlier stage",
    ),
    (
        of_stage(tasks={"matching_boosting": {"loss": "triplet"}})
        | anchors("momentum", decays=[0.5]),
        "anchor_scores",
    ),
    (anchors("offline"), "the offline scenario needs stages or checkpoints"),
    (anchors("online"), "the online scenario needs stages$"),
    (anchors("online", stages=["random"]), "boosting or imitation and anchors require each other"),
    # its tuned encoders
    (tune(mode="last"), 'tune: mode "last" and layers require each other'),
    (tune(layers=2), 'tune: mode "last" and layers require each other'),
    (tune(mode="last", layers=0), "layers is 0, expected at least 1"),
    (tune(cached=True), 'cached requires mode "last"'),
    (tune(mode="lora", rank=0), "rank must be at least 1 and alpha above 0"),
    (tune(dropout=1.0), r"dropout is 1.0, expected \[0, 1\)"),
    (tune(targets=["query"]), 'targets require mode "lora" and at least one name'),
    (tune(mode="lora", targets=[]), "at least one name"),
    (tune(lr_decay=0.0), r"lr_decay is 0.0, expected \(0, 1\]"),
    (
        tune(mode="full") | of_stage(train=["matching"]),
        "tune.image_encoder: expected image_encoder in train as well",
    ),
    (
        tune(**CACHED)
        | {"stage.student.tune.image_encoder": CACHED | {"layers": 2}, "stage.student.train": None},
        "stage 'student': expected all stages to tune the same number of layers .* 1 and 2",
    ),
]


@pytest.mark.parametrize(("settings", "message"), REFUSED, ids=[row[1] for row in REFUSED])
def test_the_setting_is_refused_with_its_reason(
    settings: dict[str, Any], message: str, recipe_path: Path
) -> None:
    with pytest.raises(ConfigError, match=message):
        recipe = load_recipe(recipe_path, [f"{k}={json.dumps(v)}" for k, v in settings.items()])
        for stage in recipe.stage:
            build_tasks(stage)


def test_a_setting_without_a_value_is_refused(recipe_path: Path) -> None:
    with pytest.raises(ConfigError, match="override 'seed': expected key=value"):
        load_recipe(recipe_path, ["seed"])

"""Draws the demo's data set and writes it in the project's own format."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import Any

from aladin_network.errors import ConfigError
from aladin_network.files import atomic_file
from aladin_network.types import NullProgress, Progress
from aladin_training.demo.captions import write_captions
from aladin_training.demo.drawing import draw_scene
from aladin_training.demo.layout import Scene, deal_group

_DATA_FILE = "captions.jsonl"
# Scenes that differ only in which object has which attribute.
_GROUP = 4


def draw_data_set(
    folder: Path,
    *,
    scenes: int = 3000,
    val_scenes: int = 400,
    test_scenes: int = 400,
    captions: int = 5,
    size_px: int = 96,
    seed: int = 0,
    progress: Progress | None = None,
) -> Path:
    """Draw scenes with captions; the same arguments draw the same data set.

    Scenes come in groups with the same attributes, dealt out differently, so that within a group
    the same words describe every scene and only their order tells which is meant. A group belongs
    to one split. Each photo's metadata holds the scene itself.

    Args:
        folder: Folder for ``captions.jsonl`` and ``images/``; older ones are replaced.
        scenes: Number of pictures in all splits together.
        val_scenes: Number of scenes in the split "val".
        test_scenes: Number of scenes in the split "test"; the rest is "train".
        captions: Captions of each scene.
        size_px: Height and width of the pictures.
        seed: Seeds all random choices.
        progress: Receives scenes.

    Returns:
        The path of ``captions.jsonl``, which exists only if the data set is complete.

    Raises:
        ConfigError: If there are no scenes left to train on, or a number is below 1.
    """
    numbers = (scenes, val_scenes, test_scenes, captions, size_px)
    if min(numbers) < 1 or scenes <= val_scenes + test_scenes:
        raise ConfigError(
            f"demo data: {scenes} scenes with {captions} captions, {val_scenes} for val and "
            f"{test_scenes} for test: every number must be at least 1 and some must be for train"
        )
    progress = progress or NullProgress()
    progress.start(scenes, "scenes")
    file = folder / _DATA_FILE
    (folder / "images").mkdir(parents=True, exist_ok=True)
    file.unlink(missing_ok=True)  # an older list must not refer to partly replaced pictures
    splits = {"test": test_scenes, "val": val_scenes, "train": scenes - val_scenes - test_scenes}
    with atomic_file(file) as partial, partial.open("w", encoding="utf-8") as lines:
        for split, count in splits.items():
            for number, (scene, texts) in enumerate(_scenes_of(f"{seed}/{split}", count, captions)):
                image = f"images/{split}-{number:05d}.jpg"
                picture = draw_scene(Random(f"{seed}/{image}"), scene, size_px)
                picture.save(folder / image, quality=90)
                line = _line(image, split, scene, texts)
                lines.write(json.dumps(line, ensure_ascii=False) + "\n")
                progress.advance()
    return file


def _scenes_of(seed: str, count: int, captions: int) -> Iterator[tuple[Scene, list[str]]]:
    """Yield `count` scenes with their captions, group by group."""
    random = Random(seed)
    while count > 0:
        group = _captioned(random, deal_group(random, min(_GROUP, count)), captions)
        if group is not None:
            count -= len(group)
            yield from group


def _captioned(
    random: Random, group: list[Scene], captions: int
) -> list[tuple[Scene, list[str]]] | None:
    """Caption a group, or return None if two of its scenes are too alike to tell apart."""
    captioned: list[tuple[Scene, list[str]]] = []
    for scene in group:
        others = [other for other in group if other is not scene]
        texts = write_captions(random, scene, others, captions)
        if texts is None:
            return None
        captioned.append((scene, texts))
    return captioned


def _line(image: str, split: str, scene: Scene, captions: list[str]) -> dict[str, Any]:
    return {
        "image": image,
        "captions": captions,
        "split": split,
        "id": Path(image).stem,
        "metadata": {"scene": dataclasses.asdict(scene)},
    }

"""What is drawn is what the scene says."""

from __future__ import annotations

from random import Random

import numpy as np
import pytest
from PIL import Image

from aladin_training.demo.drawing import draw_background, draw_scene
from aladin_training.demo.layout import BACKGROUNDS, PATTERNS, Scene, SceneObject

HUES = {"red": 0, "orange": 21, "yellow": 35, "green": 95, "blue": 157, "purple": 196, "pink": 237}


def one_object(**changes: object) -> Scene:
    values: dict[str, object] = {
        "shape": "circle", "colour": "red", "pattern": "plain", "size": "big",
        "x": 0.5, "y": 0.5, "radius": 0.3,
    }  # fmt: skip
    thing = SceneObject(**(values | changes))  # type: ignore[arg-type]
    return Scene(background="snow", objects=(thing,))


def around(picture: Image.Image, x: float, y: float, half_px: int = 4) -> Image.Image:
    column, row = int(x * picture.width), int(y * picture.height)
    return picture.crop((column - half_px, row - half_px, column + half_px, row + half_px))


@pytest.mark.parametrize("colour", sorted(HUES))
def test_a_plain_object_has_its_colour_where_it_stands(colour: str) -> None:
    picture = draw_scene(Random(0), one_object(colour=colour, x=0.3, y=0.7, radius=0.2), 96)
    patch = np.asarray(around(picture, 0.3, 0.7).convert("HSV")).reshape(-1, 3)
    off = np.abs((patch[:, 0].astype(int) - HUES[colour] + 128) % 256 - 128)
    assert off.max() < 12
    assert patch[:, 1].min() > 90
    assert np.asarray(around(picture, 0.7, 0.3).convert("HSV"))[..., 1].max() < 90


def test_patterns_look_different() -> None:
    saturations: dict[str, float] = {}
    for pattern in PATTERNS:
        picture = draw_scene(Random(0), one_object(pattern=pattern), 96)
        patch = around(picture, 0.5, 0.5, half_px=14)  # more than one stripe, dot or cell
        saturations[pattern] = float(np.asarray(patch.convert("HSV"))[..., 1].std())
    assert saturations["plain"] < 10
    assert all(saturations[pattern] > 40 for pattern in PATTERNS if pattern != "plain")


def test_backgrounds_of_one_kind_differ_and_repeat_with_the_seed() -> None:
    for kind in BACKGROUNDS:
        first = draw_background(Random(1), kind, 48)
        assert first.size == (48, 48)
        assert first.tobytes() == draw_background(Random(1), kind, 48).tobytes()
        assert first.tobytes() != draw_background(Random(2), kind, 48).tobytes()

"""Draws a scene: shaded, patterned objects with a shadow in front of a background."""

from __future__ import annotations

import math
from random import Random

import numpy as np
from PIL import Image, ImageDraw, ImageFilter

from training.demo.backgrounds import draw_background
from training.demo.layout import Scene, SceneObject

Point = tuple[float, float]
Colour = tuple[int, int, int]

# Objects are drawn this much larger and then reduced, for smooth edges.
_OVERSAMPLING = 4

# The colour of an object, and that of the pattern on it.
_PAINTS: dict[str, tuple[Colour, Colour]] = {
    "red": ((214, 40, 45), (255, 214, 210)),
    "orange": ((245, 135, 25), (255, 238, 205)),
    "yellow": ((250, 215, 45), (150, 105, 10)),
    "green": ((45, 150, 70), (210, 245, 205)),
    "blue": ((40, 90, 210), (205, 225, 255)),
    "purple": ((125, 55, 170), (232, 208, 248)),
    "pink": ((245, 130, 180), (255, 240, 247)),
    "black": ((38, 38, 44), (205, 205, 212)),
}


def draw_scene(random: Random, scene: Scene, size_px: int) -> Image.Image:
    """Draw a scene.

    Args:
        random: source of what a scene leaves open: tilt, shades, the background's details.
        scene: what to show.
        size_px: height and width.

    Returns:
        An RGB picture.
    """
    picture = draw_background(random, scene.background, size_px)
    for thing in scene.objects:
        _draw_object(random, picture, thing)
    return picture


def _draw_object(random: Random, picture: Image.Image, thing: SceneObject) -> None:
    radius_px = thing.radius * picture.width
    side = math.ceil(2 * radius_px) + 6  # room for the shadow's blur
    scale = side * _OVERSAMPLING
    tilt = math.radians(random.uniform(-12, 12))
    corners = _rotate(_OUTLINES[thing.shape], tilt)
    silhouette = _mask(corners, scale, radius_px * _OVERSAMPLING, side)
    face = _mask(corners, scale, 0.88 * radius_px * _OVERSAMPLING, side)
    paint, contrast = _PAINTS[thing.colour]
    light = random.uniform(0.92, 1.08)
    texture = _texture(random, thing.pattern, paint, contrast, scale, radius_px * _OVERSAMPLING)
    texture = _shade(texture.resize((side, side), Image.Resampling.BOX), light)
    left = round(thing.x * picture.width - side / 2)
    top = round(thing.y * picture.height - side / 2)
    shadow = silhouette.filter(ImageFilter.GaussianBlur(1.5)).point(lambda value: value * 0.4)
    rim = tuple(int(channel * 0.55) for channel in paint)
    picture.paste((15, 15, 30), (left + 1, top + 3), shadow)
    picture.paste(rim, (left, top, left + side, top + side), silhouette)
    picture.paste(texture, (left, top), face)


def _mask(corners: list[Point], scale: int, radius: float, side: int) -> Image.Image:
    mask = Image.new("L", (scale, scale))
    points = [(scale / 2 + radius * x, scale / 2 + radius * y) for x, y in corners]
    ImageDraw.Draw(mask).polygon(points, fill=255)
    return mask.resize((side, side), Image.Resampling.BOX)


def _texture(
    random: Random, pattern: str, paint: Colour, contrast: Colour, scale: int, radius: float
) -> Image.Image:
    """Cover a square with the object's colour and pattern; its measures follow the radius."""
    texture = Image.new("RGB", (scale, scale), paint)
    pen = ImageDraw.Draw(texture)
    step = radius * 0.5
    cells = math.ceil(scale / step) + 1
    shift = random.uniform(0, step)
    if pattern == "striped":
        slant = random.choice((0.0, 0.6, -0.6))
        for row in range(-cells, 2 * cells):
            y = row * step - shift
            edge = [(0, y - slant * scale / 2), (scale, y + slant * scale / 2)]
            pen.line(edge, fill=contrast, width=round(step * 0.45))
    elif pattern == "dotted":
        dot = step * 0.3
        for row in range(cells):
            for column in range(cells):
                x = (column + 0.5 * (row % 2)) * step - shift
                y = row * step - shift
                pen.ellipse((x - dot, y - dot, x + dot, y + dot), fill=contrast)
    elif pattern == "checkered":
        for row in range(cells):
            for column in range(row % 2, cells, 2):
                x, y = column * step - shift, row * step - shift
                pen.rectangle((x, y, x + step, y + step), fill=contrast)
    return texture


def _shade(texture: Image.Image, light: float) -> Image.Image:
    """Light the texture from above."""
    fall = np.linspace(1.1, 0.86, texture.height, dtype=np.float32) * light
    values = np.asarray(texture, dtype=np.float32) * fall[:, None, None]
    return Image.fromarray(values.clip(0, 255).astype(np.uint8))


def _rotate(corners: list[Point], angle: float) -> list[Point]:
    cos, sin = math.cos(angle), math.sin(angle)
    return [(x * cos - y * sin, x * sin + y * cos) for x, y in corners]


def _on_circle(degrees: float, radius: float = 1.0, x: float = 0.0) -> Point:
    angle = math.radians(degrees)
    return x + radius * math.cos(angle), radius * math.sin(angle)


def _star() -> list[Point]:
    return [_on_circle(36 * corner - 90, 0.46 if corner % 2 else 1.0) for corner in range(10)]


def _heart() -> list[Point]:
    curve: list[Point] = []
    for step in range(48):
        t = math.tau * step / 48
        x = 16 * math.sin(t) ** 3
        y = 13 * math.cos(t) - 5 * math.cos(2 * t) - 2 * math.cos(3 * t) - math.cos(4 * t)
        curve.append((x / 17, -(y + 2.5) / 15.5))
    return curve


def _moon() -> list[Point]:
    """The outer circle, and back along the shadow of a circle shifted to the right."""
    outer = [_on_circle(degrees) for degrees in range(50, 311, 10)]
    inner = [_on_circle(degrees, 0.82, 0.42) for degrees in range(289, 70, -10)]
    return outer + inner


_ARM = 0.34  # half of the width of the cross's arms

# Corners in a square from -1 to 1, y downwards.
_OUTLINES: dict[str, list[Point]] = {
    "circle": [_on_circle(degrees, 0.95) for degrees in range(0, 360, 6)],
    "square": [(-0.82, -0.82), (0.82, -0.82), (0.82, 0.82), (-0.82, 0.82)],
    "triangle": [(0.0, -0.95), (0.98, 0.75), (-0.98, 0.75)],
    "star": _star(),
    "heart": _heart(),
    "diamond": [(0.0, -1.0), (0.72, 0.0), (0.0, 1.0), (-0.72, 0.0)],
    "cross": [
        (-_ARM, -1.0), (_ARM, -1.0), (_ARM, -_ARM), (1.0, -_ARM), (1.0, _ARM), (_ARM, _ARM),
        (_ARM, 1.0), (-_ARM, 1.0), (-_ARM, _ARM), (-1.0, _ARM), (-1.0, -_ARM), (-_ARM, -_ARM),
    ],
    "moon": _moon(),
}  # fmt: skip

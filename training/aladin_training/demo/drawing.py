"""Draws scenes: shaded, patterned objects with shadows in front of varied backgrounds."""

from __future__ import annotations

import math
from collections.abc import Callable
from random import Random
from typing import NamedTuple

import numpy as np
from PIL import Image, ImageDraw, ImageFilter

from aladin_training.demo.layout import Scene, SceneObject

Colour = tuple[int, int, int]

# Objects are drawn this much larger and then reduced, for smooth edges.
_OVERSAMPLING = 4

# Colour of an object, and of the pattern on it.
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

_ARM = 0.34  # half of the width of the cross's arms


def draw_background(random: Random, kind: str, size_px: int) -> Image.Image:
    """Draw a background."""
    # Drawn twice as large and reduced, for smooth edges.
    return _grain(random, _PAINTERS[kind](random, 2 * size_px).reduce(2))


def _beach(random: Random, size: int) -> Image.Image:
    picture = _sky(random, size, (120, 190, 235), (215, 238, 250))
    pen = ImageDraw.Draw(picture)
    water, sand = size * random.uniform(0.35, 0.5), size * random.uniform(0.6, 0.75)
    pen.rectangle((0, water, size, size), fill=_near(random, (70, 160, 190)))
    shore = [(x, sand + size * 0.02 * math.sin(x / size * 9)) for x in range(0, size + 1, 4)]
    pen.polygon([*shore, (size, size), (0, size)], fill=_near(random, (238, 214, 165)))
    pen.line(shore, fill=(250, 250, 245), width=max(1, size // 48))
    return picture


def _forest(random: Random, size: int) -> Image.Image:
    picture = _sky(random, size, (170, 200, 190), (205, 220, 200))
    pen = ImageDraw.Draw(picture)
    for row, shade in enumerate(((125, 160, 135), (85, 130, 100), (55, 100, 75))):
        foot = size * (0.62 + 0.19 * row)
        for _ in range(7):
            x, height = random.uniform(0, size), size * random.uniform(0.35, 0.55)
            half = height * 0.24
            pen.polygon([(x - half, foot), (x, foot - height), (x + half, foot)], fill=shade)
        pen.rectangle((0, foot - 1, size, size), fill=shade)
    return picture


def _meadow(random: Random, size: int) -> Image.Image:
    picture = _sky(random, size, (135, 195, 245), (220, 240, 250))
    pen = ImageDraw.Draw(picture)
    horizon = size * random.uniform(0.4, 0.55)
    hill = size * random.uniform(0.05, 0.12)
    phase = random.uniform(0, 6)
    edge = [(x, horizon + hill * math.sin(x / size * 4 + phase)) for x in range(0, size + 1, 4)]
    pen.polygon([*edge, (size, size), (0, size)], fill=_near(random, (140, 195, 105)))
    for _ in range(60):
        x, y = random.uniform(0, size), random.uniform(horizon + hill, size)
        length = size * 0.035
        pen.line((x, y, x + random.uniform(-4, 4), y - length), fill=(105, 165, 80), width=2)
    return picture


def _night(random: Random, size: int) -> Image.Image:
    picture = _gradient(size, (18, 24, 58), _near(random, (62, 62, 120)))
    pen = ImageDraw.Draw(picture)
    for _ in range(55):
        x, y, glow = random.uniform(0, size), random.uniform(0, size), random.randint(130, 255)
        radius = size * random.uniform(0.002, 0.008)
        pen.ellipse((x - radius, y - radius, x + radius, y + radius), fill=(glow, glow, 225))
    return picture


def _sea(random: Random, size: int) -> Image.Image:
    picture = _gradient(size, _near(random, (80, 175, 200)), (20, 95, 150))
    pen = ImageDraw.Draw(picture)
    for row in range(9):
        y, phase = size * (row + random.random()) / 9, random.uniform(0, 6)
        swell = [
            (x, y + size * 0.015 * math.sin(x / size * 22 + phase)) for x in range(0, size + 1, 2)
        ]
        pen.line(swell, fill=(130, 205, 220), width=max(1, size // 64))
    return picture


def _snow(random: Random, size: int) -> Image.Image:
    picture = _sky(random, size, (175, 195, 220), (225, 232, 240))
    pen = ImageDraw.Draw(picture)
    horizon = size * random.uniform(0.5, 0.65)
    for _ in range(3):
        x, height = random.uniform(0, size), size * random.uniform(0.25, 0.4)
        pen.polygon(
            [(x - height, horizon), (x, horizon - height), (x + height, horizon)],
            fill=_near(random, (150, 165, 190)),
        )
    pen.rectangle((0, horizon, size, size), fill=_near(random, (240, 244, 250)))
    for _ in range(45):
        x, y, radius = random.uniform(0, size), random.uniform(0, size), size * 0.009
        pen.ellipse((x - radius, y - radius, x + radius, y + radius), fill="white")
    return picture


def _sunset(random: Random, size: int) -> Image.Image:
    picture = _gradient(size, _near(random, (120, 80, 140)), _near(random, (250, 180, 110)))
    pen = ImageDraw.Draw(picture)
    horizon = size * random.uniform(0.68, 0.8)
    x, radius = size * random.uniform(0.2, 0.8), size * random.uniform(0.08, 0.13)
    pen.ellipse((x - radius, horizon - radius, x + radius, horizon + radius), fill=(255, 225, 150))
    pen.rectangle((0, horizon, size, size), fill=_near(random, (95, 65, 95)))
    return picture


def _wall(random: Random, size: int) -> Image.Image:
    picture = Image.new("RGB", (size, size), (205, 195, 185))
    pen = ImageDraw.Draw(picture)
    height, width = size / 9, size / 4.5
    for row in range(9):
        for column in range(-1, 5):
            x, y = (column + 0.5 * (row % 2)) * width, row * height
            brick = _near(random, (176, 122, 104))
            pen.rectangle((x + 1, y + 1, x + width - 1, y + height - 1), fill=brick)
    return picture


_PAINTERS: dict[str, Callable[[Random, int], Image.Image]] = {
    "beach": _beach,
    "forest": _forest,
    "meadow": _meadow,
    "night": _night,
    "sea": _sea,
    "snow": _snow,
    "sunset": _sunset,
    "wall": _wall,
}


def _sky(random: Random, size: int, top: Colour, bottom: Colour) -> Image.Image:
    return _gradient(size, _near(random, top), _near(random, bottom))


def _gradient(size: int, top: Colour, bottom: Colour) -> Image.Image:
    share = np.linspace(0, 1, size)[:, None, None]  # (size, 1, 1)
    rows = np.array(top) * (1 - share) + np.array(bottom) * share
    return Image.fromarray(np.broadcast_to(rows, (size, size, 3)).astype(np.uint8))


def _near(random: Random, colour: Colour) -> Colour:
    """Vary a colour a little, in brightness more than in hue."""
    light = random.uniform(-14, 14)
    red, green, blue = (
        round(min(255, max(0, channel + light + random.uniform(-8, 8)))) for channel in colour
    )
    return red, green, blue


def _grain(random: Random, picture: Image.Image) -> Image.Image:
    """Add soft clouds of light and shade, and a fine grain."""
    noise = np.random.default_rng(random.getrandbits(64))
    clouds = Image.fromarray(noise.integers(0, 256, (5, 5), dtype=np.uint8))
    soft = np.asarray(clouds.resize(picture.size, Image.Resampling.BICUBIC), dtype=np.float32)
    fine = noise.normal(0, 4, (picture.height, picture.width)).astype(np.float32)
    light = (soft - 127.5) * 0.16 + fine  # (height, width)
    values = np.asarray(picture, dtype=np.float32) + light[:, :, None]
    return Image.fromarray(values.clip(0, 255).astype(np.uint8))


Point = tuple[float, float]


def draw_scene(random: Random, scene: Scene, size_px: int) -> Image.Image:
    """Draw a scene as RGB; what it leaves open is random, as tilt, shades and background."""
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
    """Cover a square with the object's colour and pattern, scaled with the radius."""
    texture = Image.new("RGB", (scale, scale), paint)
    step = radius * 0.5
    cells = math.ceil(scale / step) + 1
    shift = random.uniform(0, step)
    pen = ImageDraw.Draw(texture)
    if pattern in _PATTERNS:
        _PATTERNS[pattern](pen, random, contrast, _Cells(scale, step, cells, shift))
    return texture


class _Cells(NamedTuple):
    """The grid of a pattern: its width and that of a cell, their number, and where it begins."""

    scale: int
    step: float
    number: int
    shift: float


def _stripes(pen: ImageDraw.ImageDraw, random: Random, colour: Colour, cells: _Cells) -> None:
    scale, step, count, shift = cells
    slant = random.choice((0.0, 0.6, -0.6))
    for row in range(-count, 2 * count):
        y = row * step - shift
        edge = [(0, y - slant * scale / 2), (scale, y + slant * scale / 2)]
        pen.line(edge, fill=colour, width=round(step * 0.45))


def _dots(pen: ImageDraw.ImageDraw, _: Random, colour: Colour, cells: _Cells) -> None:
    step, count, shift = cells.step, cells.number, cells.shift
    dot = step * 0.3
    for row in range(count):
        for column in range(count):
            x, y = (column + 0.5 * (row % 2)) * step - shift, row * step - shift
            pen.ellipse((x - dot, y - dot, x + dot, y + dot), fill=colour)


def _checks(pen: ImageDraw.ImageDraw, _: Random, colour: Colour, cells: _Cells) -> None:
    step, count, shift = cells.step, cells.number, cells.shift
    for row in range(count):
        for column in range(row % 2, count, 2):
            x, y = column * step - shift, row * step - shift
            pen.rectangle((x, y, x + step, y + step), fill=colour)


# What is drawn on an object's colour; "plain" is nothing.
_PATTERNS: dict[str, Callable[[ImageDraw.ImageDraw, Random, Colour, _Cells], None]] = {
    "striped": _stripes,
    "dotted": _dots,
    "checkered": _checks,
}


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
    """The outer circle, and back along a circle that is shifted to the right."""
    outer = [_on_circle(degrees) for degrees in range(50, 311, 10)]
    inner = [_on_circle(degrees, 0.82, 0.42) for degrees in range(289, 70, -10)]
    return outer + inner


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

"""Eight kinds of backgrounds, each picture different."""

from __future__ import annotations

import math
from collections.abc import Callable
from random import Random

import numpy as np
from PIL import Image, ImageDraw

Colour = tuple[int, int, int]


def draw_background(random: Random, kind: str, size_px: int) -> Image.Image:
    """Draw a background.

    Args:
        random: source of all choices.
        kind: one of `training.demo.layout.BACKGROUNDS`.
        size_px: height and width.

    Returns:
        An RGB picture.
    """
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

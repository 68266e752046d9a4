"""What the benchmark of parts of photos draws, and how it counts."""

from __future__ import annotations

import io

import numpy as np
import pytest
from PIL import Image

from benchmarks.lib.boxed_photos import as_box, draw_box, iou, make_crop
from benchmarks.search.box_things import nouns_of


def test_boxes_have_a_tenth_to_a_quarter_of_the_area() -> None:
    generator = np.random.default_rng(0)
    for _ in range(200):
        x0, y0, x1, y1 = as_box(draw_box(generator))
        assert 0 <= x0 < x1 <= 1
        assert 0 <= y0 < y1 <= 1
        assert 0.0999 <= (x1 - x0) * (y1 - y0) <= 0.2501


def test_overlaps_by_hand() -> None:
    assert iou((0, 0, 0.5, 1), (0.25, 0, 1, 1)) == pytest.approx(0.25)
    assert iou((0, 0, 0.5, 0.5), (0.5, 0.5, 1, 1)) == 0
    assert iou((0.1, 0.1, 0.4, 0.4), (0.1, 0.1, 0.4, 0.4)) == pytest.approx(1)
    assert iou(None, (0, 0, 1, 1)) == 0


def opened(file: bytes) -> Image.Image:
    return Image.open(io.BytesIO(file)).convert("RGB")


def test_parts_hold_what_the_box_holds() -> None:
    # Red where the box is, blue elsewhere.
    photo = Image.new("RGB", (200, 160), (0, 0, 200))
    box = np.array([0.3, 0.25, 0.7, 0.6])
    photo.paste((200, 0, 0), (60, 40, 140, 96))
    made = make_crop("a", photo, box, np.random.default_rng(0))
    assert opened(made.crop).size == (80, 56)
    assert opened(made.whole).size == (200, 160)
    assert made.box == pytest.approx(box)
    for part, share in zip(made.parts, (0.9, 0.5), strict=True):
        picture = opened(part.photo)
        wide, high = picture.size
        assert wide * high == pytest.approx(share * 200 * 160, rel=0.05)
        red = np.asarray(picture)[..., 0] > 100
        assert red.sum() == pytest.approx(80 * 56, rel=0.05)
        rows, columns = np.flatnonzero(red.any(axis=1)), np.flatnonzero(red.any(axis=0))
        true = columns[0] / wide, rows[0] / high, columns[-1] / wide, rows[-1] / high
        assert 0.6 < iou(part.box, true) <= 1  # its edges are moved by up to a tenth


def test_nouns_are_counted_by_captions() -> None:
    nouns = nouns_of(["two dogs on the grass", "a dog with another dog", "a man"])
    assert (nouns["dog"], nouns["grass"], nouns["man"], nouns["two"]) == (2, 1, 1, 0)

from __future__ import annotations

import io
import math

import pytest
from PIL import Image, PngImagePlugin

from aladin_network.errors import InputError
from aladin_service.evidence.png import read_evidence, stack_pngs, write_png
from tests.service.evidence.conftest import made_pair


def test_the_numbers_come_back_with_all_of_their_digits() -> None:
    pair = made_pair("ein rötes 狗\n<x>", [4, 1, 2], [1 / 3, -math.pi / 10, 1e-9])
    png = write_png(Image.new("RGB", (30, 20), "red"), [pair])
    assert read_evidence(png) == [pair]
    assert Image.open(io.BytesIO(png)).getpixel((29, 19)) == (255, 0, 0)
    # As any other program finds them: a chunk of plain ASCII, before the pixels.
    assert b"tEXtaladin-evidence\x00{" in png
    assert png.index(b"tEXt") < png.index(b"IDAT")


def test_drawings_are_put_below_one_another() -> None:
    pairs = [made_pair(text, [0], [0.5]) for text in ("red", "blue")]
    sizes = {"red": (40, 20), "blue": (20, 30)}
    pngs = [write_png(Image.new("RGB", sizes[pair.text], pair.text), [pair]) for pair in pairs]
    stacked = stack_pngs(pngs)
    assert read_evidence(stacked) == pairs
    picture = Image.open(io.BytesIO(stacked))
    assert picture.size == (40, 50)
    points = [(0, 0), (39, 19), (9, 20), (10, 20), (29, 49), (30, 49)]
    red, blue, white = (255, 0, 0), (0, 0, 255), (255, 255, 255)
    assert [picture.getpixel(point) for point in points] == [red, red, white, blue, blue, white]
    assert read_evidence(stack_pngs(pngs[:1])) == pairs[:1]


@pytest.mark.parametrize("evidence", [None, "", "{}"])
def test_a_file_without_evidence_is_refused(evidence: str | None) -> None:
    info = PngImagePlugin.PngInfo()
    if evidence:
        info.add_text("aladin-evidence", evidence)
    target = io.BytesIO()
    Image.new("RGB", (2, 2)).save(target, "PNG", pnginfo=info)
    data = target.getvalue()[: 20 if evidence is None else None]
    with pytest.raises(InputError, match="not a drawing of evidence"):
        read_evidence(data)

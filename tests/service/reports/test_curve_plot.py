from __future__ import annotations

from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from aladin_index.measure.curve_points import (
    CandidateCurve,
    CurvePoint,
    DirectionQuality,
    Estimate,
    Quality,
    SearchTime,
    SearchTimes,
)
from aladin_network.errors import InputError
from aladin_network.types import Direction
from aladin_service.reports.curve_plot import curve_figure, write_curve

NUMBERS, MS = [1, 10, 100, 5000], [0.1, 0.2, 0.5, 2.0]


def quality(rsum: float) -> Quality:
    """Made-up recalls: those of texts a tenth of the rsum, those of images a fifth."""

    def direction(r1: float, gain: float) -> DirectionQuality:
        return DirectionQuality(
            Estimate(r1, r1 - 2, r1 + 2), Estimate(gain, gain - 1, gain + 1), 1.0
        )

    gain = rsum - 280
    return Quality(
        text_to_image=direction(rsum / 10, gain / 10),
        image_to_text=direction(rsum / 5, gain / 5),
        rsum=Estimate(rsum, rsum - 9, rsum + 9),
        rsum_gain=Estimate(gain, gain - 3, gain + 3),
    )


def made_up_curve(of_texts: int = 100, of_images: int = 100) -> CandidateCurve:
    """A curve from 280 to 300 and, by the papers' rule, to 290."""
    defaults: dict[Direction, int] = {"text_to_image": of_texts, "image_to_text": of_images}
    rows = zip(NUMBERS, [280, 295, 300, 300], [280, 291, 290, 290], MS, strict=True)
    return CandidateCurve(
        points=[
            CurvePoint(
                number,
                quality(fitted),
                quality(papers),
                SearchTimes(SearchTime(ms, 2 * ms), SearchTime(3 * ms, 6 * ms)),
            )
            for number, fitted, papers, ms in rows
        ],
        default_candidates=defaults,
        items={"text_to_image": 1000, "image_to_text": 5000},
        texts=5000,
        images=1000,
        resamples=1000,
        timed=200,
    )


@pytest.fixture(scope="module")
def axes() -> list[Any]:
    return curve_figure(made_up_curve(), "a data set").axes


def lines(axis: Any) -> dict[str, Any]:
    return {line.get_label(): line for line in axis.lines}


def words(axis: Any) -> list[str]:
    return [text.get_text() for text in axis.texts]


def test_a_row_each_for_rsum_and_both_directions_with_bands_and_default(axes: list[Any]) -> None:
    titles = [axis.get_title(loc="left") for axis in axes]
    assert titles[1::2] == ["", "", ""]
    assert [title.split(",")[0] for title in titles[::2]] == (
        ["rsum", "text to image", "image to text"]
    )
    fitted, papers = "two-stage, fusion as fitted", "two-stage, fusion 1 (the papers' rule)"
    for row, (scale, ms) in enumerate([(1, 2), (0.1, 1), (0.2, 3)]):
        left, right = lines(axes[2 * row]), lines(axes[2 * row + 1])
        values = [scale * value for value in (280, 295, 300, 300)]
        for side, x in ((left, NUMBERS), (right, [ms * each for each in MS])):
            assert side[fitted].get_xdata() == pytest.approx(x)
            assert side[fitted].get_ydata() == pytest.approx(values)
            assert side[papers].get_ydata()[-1] == pytest.approx(scale * 290)
            assert side[fitted].get_linestyle() != side[papers].get_linestyle()
            assert side[fitted].get_marker() != side[papers].get_marker()
    # The gain around matching alone.
    vertices = axes[0].collections[0].get_paths()[0].vertices
    at_hundred = sorted({float(y) for x, y in vertices if x == 100})
    assert at_hundred == pytest.approx([280 + 20 - 3, 280 + 20 + 3])
    # What the curves run between is named apart.
    texts = {text.get_text(): text for text in axes[3].texts}
    named = ("matching alone 28.0", "exhaustive alignment 29.0", "exhaustive fused 30.0")
    heights = [texts[name].xy[1] for name in named]
    assert heights == sorted(heights)
    assert min(high - low for low, high in pairwise(heights)) > 0.08
    assert all("default: 100" in words(axis) for axis in axes)
    differing = curve_figure(made_up_curve(10, 100), "a data set").axes
    found = [[word for word in words(axis) if "default" in word] for axis in differing]
    assert found == [[], [], *[["default: 10"]] * 2, *[["default: 100"]] * 2]


def test_the_name_of_the_file_says_the_format(tmp_path: Path) -> None:
    write_curve(tmp_path / "curve.SVG", made_up_curve(), "a data set")
    assert "<svg" in (tmp_path / "curve.SVG").read_text()
    with pytest.raises(InputError, match=r"\.json, \.pdf, \.png, \.svg, got .*curve\.gif"):
        write_curve(tmp_path / "curve.gif", made_up_curve(), "a data set")

"""Forty made sets of photos are each one stack, and no photo of another is among them."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.aladin.photos.test_fingerprint import scene
from tests.benchmarks.conftest import RunBenchmark

FLICKR8K = Path(__file__).parents[2] / "data" / "flickr8k" / "images"


def test_forty_sets_among_drawn_photos(run_benchmark: RunBenchmark, tmp_path: Path) -> None:
    for number in range(90):
        scene(number, 200, 150).save(tmp_path / f"{number:02d}.jpg")
    words = [str(tmp_path), "--changes", "10", "--items", "300", "--pages", "20"]
    figures = run_benchmark("search.stacks", *words)
    assert (figures["split"], figures["wrong"], figures["identical"]) == (0, 0, 0), figures["which"]
    # 40 photos are in the sets, which have six of a burst, and one to three copies of others.
    assert figures["photos"] == 50 + 4 * (2 * 4 + 6 * 2 + 2 + 4 * 2 + 3)
    assert figures["compressed"] == figures["half"] == figures["cropped_1"] == 1
    assert figures["alike"] < 0.01
    assert int(figures["nearest_pages"].split()[0]) > 40
    assert figures["seconds_300"] > 0 and figures["print_ms"] > 0
    assert figures["ratio_300"] > 0


@pytest.mark.slow
@pytest.mark.skipif(not FLICKR8K.exists(), reason="needs data/flickr8k, see the README")
def test_forty_sets_among_the_photos_of_flickr8k(run_benchmark: RunBenchmark) -> None:
    figures = run_benchmark("search.stacks", str(FLICKR8K), "--items", "1000", "--pages", "200")
    assert figures["photos"] > 7000
    # One pair of its photos is the same picture.
    assert (figures["split"], figures["wrong"], figures["identical"]) == (0, 0, 1), figures["which"]
    copies = ["compressed", "half", "quarter", "brighter", "darker", "contrast", "cropped_1"]
    assert min(figures[name] for name in copies) == 1

"""The attack by costly photos: its photos are what they are said to be, and what is a fault."""

from __future__ import annotations

import pytest

from aladin_network.photos.decoding import decode_image
from benchmarks.service.hostile_decoding import DecodingFigures, noise_bmp, webp_of

GOOD = DecodingFigures(
    decode_peak_mb=900,
    decode_health_s=0.2,
    decode_statuses={"200": 20, "413": 24, "429": 4},
    withdrawn_thumbnail_s=0.1,
    withdrawn_add_s=0.2,
)


def test_the_photos_are_pictures() -> None:
    assert len(webp_of(8000, 8000)) == 34
    assert decode_image(webp_of(300, 200)).size == (300, 200)
    noise = decode_image(noise_bmp(100))
    assert noise.size == (100, 100)
    assert set(noise.get_flattened_data()) == {(0, 0, 0), (255, 255, 255)}


def test_a_service_that_stays_small_and_answers_has_no_faults() -> None:
    assert GOOD.faults == []


@pytest.mark.parametrize(
    ("worse", "fault"),
    [
        (GOOD._replace(decode_peak_mb=1501), "1501 MB at the peak"),
        (GOOD._replace(decode_health_s=1.5), "/healthz took 1.5 s"),
        (GOOD._replace(withdrawn_thumbnail_s=31.0), "held up for 31.0 s"),
        (GOOD._replace(withdrawn_add_s=float("inf")), "held up for inf s"),
        (GOOD._replace(decode_statuses={"0": 3, "200": 21}), "were answered ['0']"),
        (GOOD._replace(decode_statuses={"500": 1}), "were answered ['500']"),
    ],
)
def test_whatever_is_over_its_bound_is_a_fault(worse: DecodingFigures, fault: str) -> None:
    (found,) = worse.faults
    assert fault in found

"""From what a user writes to a detector."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pytest
from PIL import Image

from aladin_network.detectors.base import DetectorSpec, detect_all, load_detector, parse_detector
from aladin_network.errors import ConfigError
from aladin_network.photos.regions import RegionSet


class Brightness:
    """A user's own detector: one region, as bright as the photo."""

    def __init__(self, source: str | None, options: Mapping[str, str], device: str) -> None:
        self.id = f"brightness:{source}:{options['scale']}:{device}"
        self.dim = 1
        self._scale = float(options["scale"])

    def detect(self, photo: Image.Image) -> RegionSet:
        value = self._scale * float(np.asarray(photo).mean())
        return RegionSet(np.array([[value]], np.float32), detector=self.id)


def no_detector(source: str | None, options: Mapping[str, str], device: str) -> object:
    return source, options, device


@pytest.mark.parametrize(
    ("text", "spec"),
    [
        ("hub/name", DetectorSpec("objects", "hub/name", {})),
        ("objects=a/b,threshold=0.5", DetectorSpec("objects", "a/b", {"threshold": "0.5"})),
        ("windows=c, grid=2", DetectorSpec("windows", "c", {"grid": "2"})),
        ("mine.code:make", DetectorSpec("mine.code:make", None, {})),
        ("mine.code:make=x,y=z", DetectorSpec("mine.code:make", "x", {"y": "z"})),
    ],
)
def test_a_specification_gives_kind_source_and_options(text: str, spec: DetectorSpec) -> None:
    assert parse_detector(text) == spec


def test_a_users_own_detector() -> None:
    detector = load_detector(f"{__name__}:Brightness=here,scale=2", "cpu")
    assert detector.id == "brightness:here:2:cpu"
    photos = [Image.new("RGB", (2, 2), (value,) * 3) for value in (1, 5)]
    assert [float(found.vectors[0, 0]) for found in detect_all(detector, photos)] == [2.0, 10.0]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "expected the name or the folder"),
        ("rcnn=x", "expected one of objects, windows or MODULE:NAME, got 'rcnn'"),
        ("objects=x,grid", "expected OPTION=VALUE, got 'grid'"),
        ("objects", "expected objects=SOURCE"),
        ("windows", "expected windows=SOURCE"),
        ("windows=x,grid=many,gird=2", "gird: unknown option; options are grid, overlap"),
        ("objects=x,threshold=2", "threshold: Input should be less than or equal to 1"),
        ("no.such:thing=x", "no.such:thing: cannot be imported"),
        (f"{__name__}:nothing", "cannot be imported"),
        (f"{__name__}:no_detector=x", "expected a Detector, got tuple"),
    ],
)
def test_an_impossible_specification_is_refused(text: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        load_detector(text)

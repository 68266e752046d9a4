"""Colour profiles: the colours stay, whatever else they tell does not."""

from __future__ import annotations

import struct

import numpy as np
import pytest

from aladin_service.photos.metadata import bare_profile
from tests.service.photos.profiles import converted, rgb_profile


@pytest.mark.parametrize("swapped", [False, True])
def test_the_colours_stay_and_the_rest_goes(swapped: bool) -> None:
    profile = rgb_profile(swapped=swapped)
    bare = bare_profile(profile)
    assert bare is not None
    assert b"secr" in profile
    assert b"secr" not in bare
    assert struct.unpack_from(">I", bare)[0] == len(bare)
    assert np.array_equal(converted(bare), converted(profile))
    assert bare_profile(bare) == bare


def test_tags_with_room_for_text_are_removed() -> None:
    profile = rgb_profile()
    (count,) = struct.unpack_from(">I", profile, 128)
    for place in range(132, 132 + 12 * count, 12):
        name, _, size = struct.unpack_from(">4sII", profile, place)
        if name == b"wtpt":
            hidden = profile + b"XYZ \0\0\0\0" + bytes(12) + b"secret"
            changed = hidden[:place] + struct.pack(">4sII", name, len(profile), 26)
            assert bare_profile(changed + hidden[place + 12 :]) is None
            assert size == 20
            return
    pytest.fail("the profile has no white point")


@pytest.mark.parametrize("length", [0, 40, 131, 150, 300])
def test_a_damaged_profile_is_none(length: int) -> None:
    assert bare_profile(rgb_profile()[:length]) is None
    assert bare_profile(b"\xff" * length) is None

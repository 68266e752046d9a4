"""The codes of unreliable probabilities are explained."""

from __future__ import annotations

from typing import get_args

import pytest

from aladin_index.search.unreliable import unreliable_reason
from aladin_network.calibration.calibration import Unreliable

OF_ANSWERS = ("several_parts", "box")


@pytest.mark.parametrize("code", [*get_args(Unreliable), *OF_ANSWERS])
def test_every_code_is_explained(code: str) -> None:
    assert len(unreliable_reason(code).split()) > 5
    assert unreliable_reason(code, remedy=True).startswith(unreliable_reason(code))


def test_the_remedy_is_named_to_whoever_keeps_the_index() -> None:
    assert "aladin calibrate" not in unreliable_reason("other_photos")
    assert unreliable_reason("other_photos", remedy=True).endswith(
        "do not belong; aladin calibrate CHECKPOINT DATA --index INDEX fits one to the index"
    )
    assert unreliable_reason("box", remedy=True) == unreliable_reason("box")


def test_a_code_of_a_newer_service_stands_for_itself() -> None:
    assert unreliable_reason("moon", remedy=True) == "moon"
    assert unreliable_reason(None) == "the index's calibration may not judge this query"

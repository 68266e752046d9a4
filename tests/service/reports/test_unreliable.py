"""The codes of answers without probabilities are explained."""

from __future__ import annotations

from typing import get_args

import pytest

from aladin_network.calibration.calibration import Unreliable
from aladin_service.reports.tables import unreliable_reason


@pytest.mark.parametrize("code", [*get_args(Unreliable), "several_terms", "box"])
def test_every_code_is_explained(code: str) -> None:
    assert len(unreliable_reason(code).split()) > 5


def test_the_reason_of_other_photos_names_the_command_that_helps() -> None:
    assert unreliable_reason("other_photos").endswith(
        "do not belong; aladin calibrate CHECKPOINT DATA --index INDEX fits one to the index"
    )


def test_a_code_of_a_newer_service_stands_for_itself() -> None:
    assert unreliable_reason("moon") == "moon"
    assert unreliable_reason(None) == "the index's calibration may not judge this query"

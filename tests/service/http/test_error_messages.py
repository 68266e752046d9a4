"""Messages of errors, whatever was sent."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import BaseModel, ValidationError

from aladin_service.http.error_responses import (
    cut_message,
    describe_faults,
    invalid_input,
)


def fault(name: str, kind: str = "missing") -> dict[str, Any]:
    """A fault as pydantic describes it."""
    return {"type": kind, "loc": ("items", 3, name), "msg": "Field required"}


def test_ten_faults_are_described_and_the_others_counted() -> None:
    ten = [fault(f"f{number}") for number in range(10)]
    assert describe_faults(ten).count("; ") == 9
    assert describe_faults(ten).endswith("items.3.f9: Field required")
    assert describe_faults([*ten, fault("g")]).endswith("items.3.f9: Field required; and 1 more")
    assert describe_faults([fault("g")] * 5000).endswith("; and 4990 more")


def test_a_long_name_is_cut() -> None:
    assert describe_faults([fault("n" * 100, "extra_forbidden")]) == (
        f"items.3.{'n' * 100}: unknown field"
    )
    assert describe_faults([fault("n" * 101, "extra_forbidden")]) == (
        f"items.3.{'n' * 99}…: unknown field"
    )


def test_a_long_message_keeps_both_of_its_ends() -> None:
    assert cut_message("m" * 2000) == "m" * 2000
    cut = cut_message("no item '" + "i" * 10_000 + "' among the images")
    assert len(cut) == 2000
    assert cut.startswith("no item 'iii")
    assert cut.endswith("iii' among the images")
    assert "…" in cut


@pytest.mark.parametrize(("count", "says"), [(1000, "and 990 more"), (1001, "1001 fields")])
def test_very_many_faults_are_counted_alone(count: int, says: str) -> None:
    class Numbers(BaseModel):
        values: list[int]

    with pytest.raises(ValidationError) as found:
        Numbers.model_validate({"values": ["a"] * count})
    assert says in str(invalid_input(found.value))

"""Every door of an index gives the stored answers.

`pytest tests/contract/store.py` writes `answers.json` anew; a change of it is a change of what
people get, and its commit says why.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.contract.cases import CASES
from tests.contract.comparing import differences
from tests.contract.conftest import STORED, Served

pytestmark = pytest.mark.anyio

ANSWERS = json.loads(Path(__file__).with_name("answers.json").read_text(encoding="utf-8"))
# The least number of cases that a door can express.
DOORS = {"HTTP": len(CASES), "Python": len(CASES), "command line": 50, "MCP": 20}


@pytest.mark.parametrize("door", DOORS)
async def test_a_door_gives_the_stored_answers(door: str, kind: str, served: Served) -> None:
    wrong: dict[str, list[str]] = {}
    asked = 0
    async with served.door(door) as ask:
        for case in CASES:
            found = await ask(case)
            if found is None:
                continue
            asked += 1
            stored = ANSWERS[STORED[kind]][case.name]
            if different := list(differences(found, stored)):
                wrong[case.name] = different
    assert wrong == {}
    assert asked >= DOORS[door]


def test_every_case_has_a_name_of_its_own_and_a_stored_answer() -> None:
    names = [case.name for case in CASES]
    assert len(set(names)) == len(names)
    for kind in set(STORED.values()):
        assert list(ANSWERS[kind]) == names


@pytest.mark.parametrize("kind", ["files"], indirect=True)
async def test_every_door_encodes_texts_in_the_precision_of_the_settings(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    scores: dict[str, list[float]] = {}
    for precision in ("float32", "bfloat16"):
        monkeypatch.setenv("ALADIN_QUERY_PRECISION", precision)
        for door in DOORS:
            async with served.door(door) as ask:
                found = await ask(CASES[0])
            assert found is not None
            given = [hit["score"] for hit in found["hits"]]
            assert given == pytest.approx(scores.setdefault(precision, given), abs=2e-6), door
    assert scores["float32"] != pytest.approx(scores["bfloat16"], abs=1e-4)

"""Writes the stored answers of the contract anew: `pytest tests/contract/store.py`.

The answers are those of HTTP. It is run by pytest, whose fixtures make the indexes.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.contract.cases import CASES
from tests.contract.conftest import STORED, Served

_FILE = Path(__file__).with_name("answers.json")
_DECIMALS = 6


@pytest.mark.anyio
async def test_store(kind: str, served: Served) -> None:
    """Ask all cases of an index, and store the answers."""
    if STORED[kind] != kind:
        pytest.skip("answers as another index does")
    answers = json.loads(_FILE.read_text(encoding="utf-8")) if _FILE.exists() else {}
    async with served.door("HTTP") as ask:
        found = {case.name: await ask(case) for case in CASES}
    answers[kind] = json.loads(
        json.dumps(found), parse_float=lambda text: round(float(text), _DECIMALS)
    )
    _FILE.write_text(_lines(answers), encoding="utf-8")


def _lines(answers: dict[str, dict[str, object]]) -> str:
    """One line a case, so that a change shows the searches that it changes."""
    kinds = [
        f"{json.dumps(kind)}: {{\n"
        + ",\n".join(f"{json.dumps(name)}: {json.dumps(each)}" for name, each in found.items())
        + "\n}"
        for kind, found in answers.items()
    ]
    return "{\n" + ",\n".join(kinds) + "\n}\n"

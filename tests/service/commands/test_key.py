"""``aladin key``."""

from __future__ import annotations

from pathlib import Path

import pytest

from aladin_service.api_key import digest
from aladin_service.keys_file import read_keys
from tests.service.commands.conftest import aladin, aladin_json


@pytest.mark.parametrize(
    ("words", "scopes", "rate"),
    [
        ("--scope read --scope write --rate 3", {"read", "write"}, (3, 6)),
        ("--rate 0.5 --burst 4", {"read"}, (0.5, 4)),
        ("", {"read"}, (None, None)),
    ],
)
def test_a_key_is_shown_once_stored_as_a_digest_listed_and_removed(
    tmp_path: Path,
    words: str,
    scopes: set[str],
    rate: tuple[float | None, int | None],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    file = tmp_path / "keys.json"
    monkeypatch.setenv("ALADIN_KEYS_FILE", str(file))  # the service's own setting
    added = aladin("key", "add", "ci", *words.split())
    (secret,), (key,) = added.stdout.splitlines(), read_keys(file)
    assert key.sha256 == digest(secret)
    assert (key.scopes, (key.requests_per_s, key.burst)) == (scopes, rate)
    (listed,), table = aladin_json("key", "list"), aladin("key", "list", "--keys", file).stdout
    names = ("requests_per_s", "burst")
    facts = {"name": "ci", "scopes": sorted(scopes), "created": key.created}
    assert listed == facts | dict(zip(names, rate, strict=True))
    assert "ci" in table
    for text in (added.stderr, str(listed), table):
        assert secret not in text and digest(secret) not in text
    assert aladin("key", "remove", "ci", "--keys", file).stdout == ""
    assert aladin_json("key", "list") == []

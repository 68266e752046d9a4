"""The keys that a service knows."""

from __future__ import annotations

import hmac
import re
from pathlib import Path
from typing import Any

import pytest

from aladin_network.errors import ConfigError
from aladin_service.http.access.policy import KeyRing
from aladin_service.http.errors import KeysMissingError, RateLimitedError
from aladin_service.keys_file import add_key, remove_key


def test_every_key_is_found_by_its_secret_alone(keys_file: Path, keys: dict[str, str]) -> None:
    ring = KeyRing(keys_file)
    for name, secret in keys.items():
        found = ring.find(secret)
        assert found is not None
        assert found.name == name
        for wrong in (secret[:-1], secret + "x", secret.upper(), found.sha256, "", "ü"):
            assert ring.find(wrong) is None


def test_every_digest_is_compared_whichever_matches(
    keys_file: Path, keys: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    ring = KeyRing(keys_file)
    compared: list[bytes] = []
    compare = hmac.compare_digest

    def note(known: bytes, presented: bytes) -> bool:
        compared.append(known)
        return compare(known, presented)

    monkeypatch.setattr(hmac, "compare_digest", note)
    for secret in (*keys.values(), "wrong"):
        compared.clear()
        ring.find(secret)
        assert len(set(compared)) == len(compared) == len(keys)


def test_a_removed_key_is_refused_a_second_later(
    keys_file: Path, keys: dict[str, str], clock: Any
) -> None:
    ring = KeyRing(keys_file, clock)
    remove_key(keys_file, "write")
    new = add_key(keys_file, "new", ["read"])
    clock.now_s += 0.9
    assert ring.find(keys["write"]) is not None
    clock.now_s += 0.2
    assert ring.find(keys["write"]) is None
    assert ring.find(new) is not None
    assert ring.find(keys["read"]) is not None


def test_a_broken_file_changes_nothing_and_is_reported_once(
    keys_file: Path,
    keys: dict[str, str],
    clock: Any,
    caplog: pytest.LogCaptureFixture,
) -> None:
    ring = KeyRing(keys_file, clock)
    whole = keys_file.read_text()
    keys_file.write_text("{")
    for _ in range(3):
        clock.now_s += 2
        assert ring.find(keys["read"]) is not None
    (record,) = caplog.records
    assert record.levelname == "ERROR"
    assert "keeping the previous keys" in record.getMessage()
    keys_file.write_text(whole)
    remove_key(keys_file, "read")
    clock.now_s += 2
    assert ring.find(keys["read"]) is None


def test_without_its_file_no_key_is_accepted(
    keys_file: Path, keys: dict[str, str], clock: Any, caplog: pytest.LogCaptureFixture
) -> None:
    ring = KeyRing(keys_file, clock)
    whole = keys_file.read_text()
    assert not ring.is_missing()
    keys_file.unlink()
    # Programs that replace a file by deleting the old one first leave none for a moment.
    for _ in range(4):
        clock.now_s += 1.2
        assert ring.find(keys["read"]) is not None
        assert not ring.is_missing()
    assert not caplog.records
    clock.now_s += 0.2
    assert ring.find(keys["read"]) is not None  # it is looked for once a second
    clock.now_s += 0.8
    for _ in range(3):
        for secret in (*keys.values(), "wrong"):
            with pytest.raises(KeysMissingError):
                ring.find(secret)
        assert ring.is_missing()
        clock.now_s += 100
    (record,) = caplog.records
    assert record.levelname == "ERROR"
    assert record.getMessage() == f"{keys_file} is missing: rejecting all keys until it is restored"
    # Half a file is none.
    caplog.clear()
    keys_file.write_text("{")
    for _ in range(2):
        with pytest.raises(KeysMissingError):
            ring.find(keys["read"])
    (record,) = caplog.records
    assert record.getMessage().endswith("; rejecting all keys")
    keys_file.write_text(whole)
    assert ring.find(keys["read"]) is not None  # at once
    assert not ring.is_missing()
    assert ring.find("wrong") is None


def test_a_file_that_is_gone_for_a_moment_is_read_again_when_it_is_back(
    keys_file: Path, keys: dict[str, str], clock: Any
) -> None:
    ring = KeyRing(keys_file, clock)
    away = keys_file.rename(keys_file.with_name("away"))
    clock.now_s += 2
    assert ring.find(keys["read"]) is not None
    remove_key(away, "read")
    away.rename(keys_file)
    clock.now_s += 2
    assert ring.find(keys["read"]) is None
    assert ring.find(keys["write"]) is not None
    # The next time that it is gone it may be so for as long.
    keys_file.unlink()
    clock.now_s += 4.9
    assert ring.find(keys["write"]) is not None


def test_a_file_that_went_while_nobody_asked_is_missed_at_once(
    keys_file: Path, keys: dict[str, str], clock: Any
) -> None:
    ring = KeyRing(keys_file, clock)
    clock.now_s += 3600
    keys_file.unlink()
    with pytest.raises(KeysMissingError):
        ring.find(keys["read"])


@pytest.mark.parametrize("text", [None, "", "[]"])
def test_a_service_does_not_start_on_a_broken_file(keys_file: Path, text: str | None) -> None:
    if text is not None:
        keys_file.write_text(text)
    with pytest.raises(ConfigError):
        KeyRing(keys_file)


def test_a_reload_gives_nobody_a_full_bucket(keys_file: Path, clock: Any) -> None:
    secret = add_key(keys_file, "slow", ["read"], requests_per_s=0.1, burst=1)
    ring = KeyRing(keys_file, clock)

    def ask() -> None:
        key = ring.find(secret)
        assert key is not None
        bucket = ring.bucket(key)
        assert bucket is not None
        bucket.take(1)

    ask()
    add_key(keys_file, "other", ["read"])
    clock.now_s += 2
    with pytest.raises(RateLimitedError):
        ask()


def test_a_key_without_a_rate_has_no_bucket(keys_file: Path, keys: dict[str, str]) -> None:
    ring = KeyRing(keys_file)
    key = ring.find(keys["read"])
    assert key is not None
    assert ring.bucket(key) is None


def test_a_file_that_was_read_again_is_logged_with_the_names_of_its_keys(
    keys_file: Path, keys: dict[str, str], clock: Any, caplog: pytest.LogCaptureFixture
) -> None:
    ring = KeyRing(keys_file, clock)
    remove_key(keys_file, "write")
    clock.now_s += 1
    with caplog.at_level("INFO", "aladin_service.http.access.policy"):
        assert ring.find(keys["read"]) is not None
    (record,) = caplog.records
    assert record.getMessage() == f"{keys_file}: reloaded, keys: read, metrics"


def test_a_key_with_another_rate_has_another_bucket(keys_file: Path, clock: Any) -> None:
    secret = add_key(keys_file, "slow", ["read"], requests_per_s=0.1, burst=1)
    ring = KeyRing(keys_file, clock)
    key = ring.find(secret)
    assert key is not None
    before = ring.bucket(key)
    for per_s, burst in ((0.2, 1), (0.2, 2)):
        text = keys_file.read_text()
        text = re.sub(r'"requests_per_s": [0-9.]+', f'"requests_per_s": {per_s}', text)
        keys_file.write_text(re.sub(r'"burst": \d+', f'"burst": {burst}', text) + "\n")
        clock.now_s += 1
        key = ring.find(secret)
        assert key is not None
        bucket = ring.bucket(key)
        assert bucket is not None
        assert bucket is not before
        assert (bucket.per_s, bucket.burst) == (per_s, burst)
        before = bucket

"""Who gets in, by settings, keys and the address, and the keys that a service knows."""

from __future__ import annotations

import hmac
import re
from pathlib import Path
from typing import Any

import pytest

from aladin_network.errors import ConfigError
from aladin_service.http.access.policy import KeyRing, make_policy
from aladin_service.http.access.rate_limits import TokenBucket
from aladin_service.http.errors import KeysMissingError, RateLimitedError
from aladin_service.keys_file import add_key, remove_key
from aladin_service.settings import ServiceSettings
from tests.service.http.conftest import Clock

ALL, READING = {"read", "write", "metrics"}, {"read", "metrics"}


def anonymous(host: str, **settings: Any) -> set[str]:
    """Return the scopes of a request without a key."""
    return set(make_policy(ServiceSettings(**settings), host).anonymous)


@pytest.mark.parametrize("host", ["127.0.0.1", "127.0.0.2", "::1", "Localhost"])
def test_without_keys_everybody_on_this_machine_may_do_everything(host: str) -> None:
    assert anonymous(host) == anonymous(host, allow_anonymous=True) == ALL
    assert make_policy(ServiceSettings()).anonymous == ALL


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "", "192.168.1.7", "example.org", "127.1"])
def test_without_keys_nobody_else_gets_in_unless_somebody_said_so(host: str) -> None:
    with pytest.raises(ConfigError, match="create a key with aladin key add"):
        anonymous(host)
    assert anonymous(host, allow_anonymous=True) == READING


@pytest.mark.parametrize("host", ["127.0.0.1", "0.0.0.0"])
def test_with_keys_they_are_needed_everywhere(
    host: str, keys_file: Path, keys: dict[str, str]
) -> None:
    assert keys
    assert anonymous(host, keys_file=keys_file) == set()
    assert anonymous(host, keys_file=keys_file, allow_anonymous=True) == {"read"}
    keys_file.write_text('{"schema_version": 1, "keys": []}')  # it lost its last key
    assert anonymous(host, keys_file=keys_file) == set()


def test_every_key_is_found_by_its_secret_alone_and_every_digest_compared(
    keys_file: Path, keys: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    ring = KeyRing(keys_file)
    compared: list[bytes] = []
    compare = hmac.compare_digest

    def note(known: bytes, presented: bytes) -> bool:
        compared.append(known)
        return compare(known, presented)

    monkeypatch.setattr(hmac, "compare_digest", note)
    for name, secret in keys.items():
        found = ring.find(secret)
        assert found is not None
        assert (found.name, ring.bucket(found)) == (name, None)  # it has no rate
        for wrong in (secret[:-1], secret + "x", secret.upper(), found.sha256, "", "ü"):
            compared.clear()
            assert ring.find(wrong) is None
            assert len(set(compared)) == len(compared) == len(keys)


def test_a_changed_file_is_read_a_second_later_and_its_names_are_logged(
    keys_file: Path, keys: dict[str, str], clock: Clock, caplog: pytest.LogCaptureFixture
) -> None:
    ring = KeyRing(keys_file, clock)
    remove_key(keys_file, "write")
    new = add_key(keys_file, "new", ["read"])
    clock.now_s += 0.9
    assert ring.find(keys["write"]) is not None
    clock.now_s += 0.2
    with caplog.at_level("INFO", "aladin_service.http.access.policy"):
        assert ring.find(keys["write"]) is None
    assert ring.find(new) is not None
    assert ring.find(keys["read"]) is not None
    (line,) = caplog.messages
    assert line.endswith("keys: read, metrics, new")


def test_a_broken_file_changes_nothing_and_is_reported_once(
    keys_file: Path, keys: dict[str, str], clock: Clock, caplog: pytest.LogCaptureFixture
) -> None:
    ring = KeyRing(keys_file, clock)
    whole = keys_file.read_text()
    keys_file.write_text("{")
    for _ in range(3):
        clock.now_s += 2
        assert ring.find(keys["read"]) is not None
    (record,) = caplog.records
    assert (record.levelname, "keeping the previous keys" in record.message) == ("ERROR", True)
    keys_file.write_text(whole)
    remove_key(keys_file, "read")
    clock.now_s += 2
    assert ring.find(keys["read"]) is None


def test_without_its_file_no_key_is_accepted(
    keys_file: Path, keys: dict[str, str], clock: Clock, caplog: pytest.LogCaptureFixture
) -> None:
    ring = KeyRing(keys_file, clock)
    whole = keys_file.read_text()
    assert not ring.is_missing()
    keys_file.unlink()
    # Programs that replace a file by deleting the old one first leave none for a moment. It is
    # looked for once a second.
    for passed_s in (1.2, 1.2, 1.2, 1.2, 0.2):
        clock.now_s += passed_s
        assert ring.find(keys["read"]) is not None
        assert passed_s == 0.2 or not ring.is_missing()
    assert not caplog.records
    clock.now_s += 0.8
    for _ in range(3):
        for secret in (*keys.values(), "wrong"):
            with pytest.raises(KeysMissingError):
                ring.find(secret)
        assert ring.is_missing()
        clock.now_s += 100
    keys_file.write_text("{")  # half a file is none
    for _ in range(2):
        with pytest.raises(KeysMissingError):
            ring.find(keys["read"])
    missing, broken = caplog.records
    assert (missing.levelname, "is missing" in missing.message) == ("ERROR", True)
    assert broken.message.endswith("; rejecting all keys")
    keys_file.write_text(whole)
    assert ring.find(keys["read"]) is not None  # at once
    assert not ring.is_missing()
    assert ring.find("wrong") is None


def test_a_file_that_is_gone_for_a_moment_is_read_again_when_it_is_back(
    keys_file: Path, keys: dict[str, str], clock: Clock
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
    # One that went while nobody asked is missed at once.
    clock.now_s += 3600
    with pytest.raises(KeysMissingError):
        ring.find(keys["write"])


def test_a_reload_keeps_a_bucket_unless_the_rate_of_its_key_has_changed(
    keys_file: Path, clock: Clock
) -> None:
    secret = add_key(keys_file, "slow", ["read"], requests_per_s=0.1, burst=1)
    ring = KeyRing(keys_file, clock)

    def bucket() -> TokenBucket:
        key = ring.find(secret)
        assert key is not None
        found = ring.bucket(key)
        assert found is not None
        return found

    before = bucket()
    before.take(1)
    add_key(keys_file, "other", ["read"])
    clock.now_s += 2
    with pytest.raises(RateLimitedError):
        bucket().take(1)
    for per_s, burst in ((0.2, 1), (0.2, 2)):
        text = re.sub(
            r'"requests_per_s": 0.[12]', f'"requests_per_s": {per_s}', keys_file.read_text()
        )
        keys_file.write_text(re.sub(r'"burst": [12]', f'"burst": {burst}', text) + "\n")
        clock.now_s += 1
        after = bucket()
        assert after is not before
        assert (after.per_s, after.burst) == (per_s, burst)
        before = after


def test_what_cannot_be_read_opens_nothing(
    tmp_path: Path, keys_file: Path, keys: dict[str, str], caplog: pytest.LogCaptureFixture
) -> None:
    for text in ("", "[]"):
        (tmp_path / "broken.json").write_text(text)
        with pytest.raises(ConfigError):
            KeyRing(tmp_path / "broken.json")
    with pytest.raises(ConfigError, match="cannot read the keys"):
        anonymous("127.0.0.1", keys_file=tmp_path / "none.json")
    with pytest.raises(ConfigError, match="ALADIN_CORS_ORIGINS"):
        anonymous("127.0.0.1", cors_origins=("*",))
    # The log says who may do what.
    with caplog.at_level("INFO", "aladin_service.http.access.policy"):
        anonymous("127.0.0.1")
        anonymous("0.0.0.0", keys_file=keys_file)
    open_to_all, closed = caplog.messages
    assert "anybody on this machine may search, add and delete items" in open_to_all
    assert str(keys_file) in closed and "nobody else may do anything" in closed
    assert keys

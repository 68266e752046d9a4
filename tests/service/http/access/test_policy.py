"""Who gets in, by settings, keys and the address."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from aladin_network.errors import ConfigError
from aladin_service.http.access.policy import make_policy
from aladin_service.settings import ServiceSettings

ALL = {"read", "write", "metrics"}


def anonymous(host: str, **settings: Any) -> set[str]:
    """Return the scopes of a request without a key."""
    return set(make_policy(ServiceSettings(**settings), host).anonymous)


@pytest.mark.parametrize("host", ["127.0.0.1", "::1", "localhost"])
def test_without_keys_everybody_on_this_machine_may_do_everything(host: str) -> None:
    assert anonymous(host) == ALL
    assert anonymous(host, allow_anonymous=True) == ALL


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "", "192.168.1.7", "example.org"])
def test_without_keys_nobody_else_gets_in_unless_somebody_said_so(host: str) -> None:
    with pytest.raises(ConfigError, match="without keys the service listens on"):
        anonymous(host)
    assert anonymous(host, allow_anonymous=True) == {"read", "metrics"}


@pytest.mark.parametrize("host", ["127.0.0.1", "0.0.0.0"])
def test_with_keys_they_are_needed_everywhere(
    host: str, keys_file: Path, keys: dict[str, str]
) -> None:
    assert keys
    assert anonymous(host, keys_file=keys_file) == set()
    assert anonymous(host, keys_file=keys_file, allow_anonymous=True) == {"read"}


@pytest.mark.parametrize(
    ("host", "settings", "said"),
    [
        (
            "127.0.0.1",
            {},
            "the service asks for no key: anybody on this machine may search, add and delete "
            "items, and read the metrics",
        ),
        (
            "127.0.0.1",
            {"read_only": True},
            "the service asks for no key: anybody on this machine may search and read the metrics",
        ),
        (
            "0.0.0.0",
            {"allow_anonymous": True},
            "the service asks for no key: anybody who can reach it may search and read the metrics",
        ),
    ],
)
def test_the_log_says_who_may_do_what_without_keys(
    host: str, settings: dict[str, Any], said: str, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level("INFO", "aladin_service.http.access.policy"):
        anonymous(host, **settings)
    assert [record.getMessage() for record in caplog.records] == [said]


def test_the_log_says_who_may_do_what_with_keys(
    keys_file: Path, keys: dict[str, str], caplog: pytest.LogCaptureFixture
) -> None:
    assert keys
    with caplog.at_level("INFO", "aladin_service.http.access.policy"):
        anonymous("0.0.0.0", keys_file=keys_file)
        anonymous("0.0.0.0", keys_file=keys_file, allow_anonymous=True)
    start = f"whoever has a key of {keys_file} may do what it allows;"
    assert [record.getMessage() for record in caplog.records] == [
        f"{start} nobody else may do anything",
        f"{start} anybody else may search without a key",
    ]


def test_a_file_that_lost_its_last_key_opens_nothing(keys_file: Path) -> None:
    keys_file.write_text('{"schema_version": 1, "keys": []}')
    assert anonymous("0.0.0.0", keys_file=keys_file) == set()


def test_what_cannot_be_read_opens_nothing(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="cannot read the keys"):
        anonymous("127.0.0.1", keys_file=tmp_path / "none.json")
    with pytest.raises(ConfigError, match="ALADIN_CORS_ORIGINS"):
        anonymous("127.0.0.1", cors_origins=("*",))


def test_by_default_it_is_the_policy_of_this_machine() -> None:
    assert make_policy(ServiceSettings()).anonymous == ALL


def test_who_listens_to_all_without_keys_is_told_what_to_do() -> None:
    with pytest.raises(ConfigError) as failure:
        anonymous("0.0.0.0")
    assert str(failure.value) == (
        "without keys the service listens on 127.0.0.1 only, not on 0.0.0.0: create a key with "
        "aladin key add and pass --keys, or allow reading without a key by --allow-anonymous"
    )


def test_what_the_settings_say_is_in_the_policy() -> None:
    settings = ServiceSettings(
        allowed_hosts=("Search.Example",), cors_origins=("https://friend.example",)
    )
    policy = make_policy(settings, "LocalHost")
    assert policy.hosts == {"search.example", "localhost"}
    assert policy.origins == {"https://friend.example"}
    assert (policy.keys, policy.clients) == (None, None)
    assert not policy.is_locked()


def test_a_client_without_a_key_has_the_rate_of_the_settings(clock: Any) -> None:
    settings = ServiceSettings(anonymous_requests_per_s=2, anonymous_burst=7)
    clients = make_policy(settings, clock=clock).clients
    assert clients is not None
    bucket = clients.of("10.0.0.1")
    assert (bucket.per_s, bucket.burst) == (2, 7)
    bucket.take(7)
    clock.now_s += 0.5
    bucket.take(1)


def test_wrong_keys_have_a_rate_of_their_own(clock: Any) -> None:
    bucket = make_policy(ServiceSettings(), clock=clock).wrong_keys.of("10.0.0.1")
    assert (bucket.per_s, bucket.burst) == (1.0, 20)
    bucket.take(20)
    clock.now_s += 1
    bucket.take(1)


def test_a_service_is_locked_while_only_keys_would_open_it_and_their_file_is_gone(
    keys_file: Path, keys: dict[str, str], clock: Any
) -> None:
    assert keys
    closed = make_policy(ServiceSettings(keys_file=keys_file), clock=clock)
    half_open = make_policy(ServiceSettings(keys_file=keys_file, allow_anonymous=True), clock=clock)
    assert not closed.is_locked()
    keys_file.unlink()
    clock.now_s += 5
    assert closed.is_locked()
    assert not half_open.is_locked()

"""The file of API keys."""

from __future__ import annotations

import hashlib
import json
import os
import stat
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from aladin_network.errors import ConfigError
from aladin_service.api_key import PREFIX, digest, new_secret
from aladin_service.keys_file import add_key, read_keys, remove_key


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "keys.json"


def test_a_key_is_kept_as_its_digest_alone(file: Path) -> None:
    secret = add_key(file, "ci", ["write", "read"], requests_per_s=2.5, burst=7)
    (key,), stored = read_keys(file), json.loads(file.read_text())
    sha256 = hashlib.sha256(secret.encode()).hexdigest()
    assert (key.name, key.sha256, key.scopes) == ("ci", sha256, {"read", "write"})
    assert (key.requests_per_s, key.burst) == (2.5, 7)
    assert stored["keys"][0].pop("created").endswith("+00:00")
    scopes, rate = ["read", "write"], {"requests_per_s": 2.5, "burst": 7}
    written = {"name": "ci", "sha256": digest(secret), "scopes": scopes, **rate}
    assert stored == {"schema_version": 1, "keys": [written]}
    assert secret.removeprefix(PREFIX) not in file.read_text()
    secrets = {new_secret() for _ in range(100)}
    assert len(secrets) == 100
    # 32 bytes in base64 without padding.
    assert {len(secret.removeprefix(PREFIX)) for secret in secrets} == {43}


def test_nobody_else_reads_a_new_file_and_what_was_allowed_stays(file: Path) -> None:
    add_key(file, "one", ["read"])
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    file.chmod(0o640)
    groups = [group for group in os.getgroups() if group != file.stat().st_gid]
    groups += [10001] if os.getuid() == 0 else []
    if groups:
        os.chown(file, -1, groups[-1])
    before = file.stat()
    add_key(file, "two", ["read"])
    assert stat.S_IMODE(file.stat().st_mode) == 0o640
    assert file.stat().st_gid == before.st_gid


def test_a_removed_key_is_gone_and_the_others_stay(file: Path) -> None:
    for name in ("one", "two", "three"):
        add_key(file, name, ["read"])
    before = read_keys(file)
    remove_key(file, "two")
    assert read_keys(file) == (before[0], before[2])


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (lambda file: add_key(file, "one", ["write"]), "the key 'one' already exists"),
        (lambda file: remove_key(file, "two"), "no key 'two'; existing keys: one"),
        *(
            (lambda file, name=name: add_key(file, name, ["read"]), "expected a name")
            for name in ("", "a b", "a\nb", "a" * 65, "ü")
        ),
        (lambda file: read_keys(file.parent / "none"), "cannot read the keys: No such file"),
        (lambda file: remove_key(file.parent / "none", "one"), "cannot read the keys: No such f"),
        (lambda file: add_key(file / "below" / "a", "one", ["read"]), "cannot write the keys"),
    ],
)
def test_a_change_that_is_refused_leaves_everything_as_it_was(
    file: Path, change: Callable[[Path], object], says: str
) -> None:
    add_key(file, "one", ["read"])
    before = {path: path.read_bytes() for path in file.parent.iterdir()}
    with pytest.raises(ConfigError, match=says):
        change(file)
    assert {path: path.read_bytes() for path in file.parent.iterdir()} == before


def test_writers_at_once_lose_nothing(file: Path) -> None:
    names = {f"key-{number}" for number in range(16)}
    with ThreadPoolExecutor(8) as writers:
        list(writers.map(lambda name: add_key(file, name, ["read"]), names))
    assert {key.name for key in read_keys(file)} == names


_GOOD = {
    "name": "a",
    "sha256": "0" * 64,
    "scopes": ["read"],
    "requests_per_s": None,
    "burst": None,
    "created": "2026-01-01T00:00:00+00:00",
}


def _stored(*keys: dict[str, object], version: object = 1) -> str:
    return json.dumps({"schema_version": version, "keys": keys})


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "JSON"),
        ("[]", "object"),
        (_stored(_GOOD)[:-2], "JSON"),
        (_stored(_GOOD, version=2), "schema_version"),
        (_stored(_GOOD | {"scopes": ["admin"]}), "keys.0.scopes.0"),
        (_stored(_GOOD | {"scopes": []}), "keys.0.scopes"),
        (_stored(_GOOD | {"sha256": "abc"}), "keys.0.sha256"),
        (_stored(_GOOD | {"requests_per_s": 0, "burst": 1}), "keys.0.requests_per_s"),
        (_stored(_GOOD | {"requests_per_s": 1.0}), "expected requests_per_s and burst"),
        (_stored(_GOOD | {"colour": "red"}), "keys.0.colour"),
        (_stored(_GOOD, _GOOD | {"sha256": "1" * 64}), "two keys have the same name"),
        (_stored(_GOOD, _GOOD | {"name": "b"}), "two keys have the same sha256"),
    ],
)
def test_what_is_no_file_of_keys(file: Path, text: str, says: str) -> None:
    file.write_text(text)
    with pytest.raises(ConfigError, match="not a valid key file") as failure:
        read_keys(file)
    assert says in str(failure.value)
    # Nor does a command write over it.
    with pytest.raises(ConfigError):
        add_key(file, "new", ["read"])
    assert file.read_text() == text

"""``aladin key``."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from aladin_service.api_key import digest
from aladin_service.cli import app
from aladin_service.keys_file import read_keys


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "keys.json"


def run(*words: object) -> Result:
    """Run ``aladin key`` with `words`."""
    return CliRunner().invoke(app, ["key", *map(str, words)])


def test_the_key_alone_is_on_stdout(file: Path) -> None:
    result = run("add", "ci", "--keys", file, "--scope", "read", "--scope", "write", "--rate", "3")
    assert result.exit_code == 0
    (secret,) = result.stdout.splitlines()
    (key,) = read_keys(file)
    assert key.sha256 == digest(secret)
    assert key.scopes == {"read", "write"}
    assert (key.requests_per_s, key.burst) == (3, 6)
    assert secret not in result.stderr


def test_a_key_without_scopes_may_read(file: Path) -> None:
    run("add", "web", "--keys", file)
    (key,) = read_keys(file)
    assert key.scopes == {"read"}
    assert (key.requests_per_s, key.burst) == (None, None)


def test_the_list_shows_neither_keys_nor_digests(file: Path) -> None:
    secret = run("add", "ci", "--keys", file, "--rate", "0.5", "--burst", "4").stdout.strip()
    listed = run("list", "--keys", file, "--json")
    (key,) = json.loads(listed.stdout)
    assert key.pop("created") == read_keys(file)[0].created
    assert key == {"name": "ci", "scopes": ["read"], "requests_per_s": 0.5, "burst": 4}
    table = run("list", "--keys", file).stdout
    assert "ci" in table
    for text in (listed.stdout, table):
        assert secret not in text
        assert digest(secret) not in text


def test_a_removed_key_is_listed_no_more(file: Path) -> None:
    run("add", "ci", "--keys", file)
    removed = run("remove", "ci", "--keys", file)
    assert (removed.exit_code, removed.stdout) == (0, "")
    assert json.loads(run("list", "--keys", file, "--json").stdout) == []


def test_the_file_may_be_named_by_the_services_own_setting(
    file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ALADIN_KEYS_FILE", str(file))
    assert run("add", "ci").exit_code == 0
    assert [key.name for key in read_keys(file)] == ["ci"]


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["add", "ci", "--rate", "0"], "--rate: expected a number above 0"),
        (["add", "ci", "--rate", "nan"], "--rate: expected a number above 0"),
        (["add", "ci", "--burst", "3"], "--burst: expected --rate with it"),
        (["add", "a b"], "expected a name"),
        (["remove", "ci"], "cannot read the keys"),
        (["list"], "cannot read the keys"),
    ],
)
def test_a_mistake_is_one_line_and_two(words: list[str], says: str, file: Path) -> None:
    result = run(*words, "--keys", file)
    assert (result.exit_code, result.stdout) == (2, "")
    (line,) = result.stderr.splitlines()
    assert says in line
    assert not file.exists()

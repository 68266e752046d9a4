"""The file of API keys: read completely or not at all, replaced atomically."""

from __future__ import annotations

import contextlib
import json
import os
import re
import stat
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import ClassVar, Literal

from pydantic import ConfigDict, TypeAdapter, ValidationError

from aladin_network.config import STRICT
from aladin_network.errors import ConfigError
from aladin_network.files import atomic_file, lock_to_write
from aladin_service.api_key import NAME, ApiKey, Scope, digest, new_secret

_OWNER_ONLY = 0o600


@dataclass(frozen=True, kw_only=True)
class _KeyFile:
    __pydantic_config__: ClassVar[ConfigDict] = STRICT

    schema_version: Literal[1]
    keys: tuple[ApiKey, ...]

    def __post_init__(self) -> None:
        for what in ("name", "sha256"):
            if len({getattr(key, what) for key in self.keys}) < len(self.keys):
                raise ValueError(f"two keys have the same {what}")


_KEY_FILE = TypeAdapter(_KeyFile)


def read_keys(file: Path) -> tuple[ApiKey, ...]:
    """Read a file of keys."""
    try:
        data = file.read_bytes()
    except OSError as error:
        raise ConfigError(f"{file}: cannot read the keys: {error.strerror}") from None
    try:
        return _KEY_FILE.validate_json(data, strict=True).keys
    except ValidationError as error:
        fault = error.errors(include_url=False, include_input=False)[0]
        where = ".".join(map(str, fault["loc"]))
        raise ConfigError(
            f"{file}: not a valid key file: {f'{where}: ' if where else ''}{fault['msg']}"
        ) from None


def add_key(
    file: Path,
    name: str,
    scopes: Sequence[Scope],
    *,
    requests_per_s: float | None = None,
    burst: int | None = None,
) -> str:
    """Add a key to a file, which is created if it does not exist.

    Returns the secret; the file stores only its digest, so it cannot be shown again.
    """
    if not re.fullmatch(NAME, name):
        raise ConfigError(
            f"expected a name of up to 64 characters (A-Z a-z 0-9 . _ -), got {name!r}"
        )
    secret = new_secret()
    key = ApiKey(
        name=name,
        sha256=digest(secret),
        scopes=frozenset(scopes),
        requests_per_s=requests_per_s,
        burst=burst,
        created=datetime.now(UTC).isoformat(timespec="seconds"),
    )
    with _only_writer(file):
        keys = read_keys(file) if file.exists() else ()
        if any(each.name == name for each in keys):
            raise ConfigError(f"{file}: the key {name!r} already exists")
        _write_keys(file, (*keys, key))
    return secret


def remove_key(file: Path, name: str) -> None:
    """Remove a key from a file."""
    read_keys(file)  # what is no file of keys gets no lock beside it
    with _only_writer(file):
        keys = read_keys(file)
        left = tuple(key for key in keys if key.name != name)
        if len(left) == len(keys):
            known = ", ".join(key.name for key in keys) or "none"
            raise ConfigError(f"{file}: no key {name!r}; existing keys: {known}")
        _write_keys(file, left)


@contextmanager
def _only_writer(file: Path) -> Generator[None]:
    """Serialize writers: of two that read and replace at once, one would undo the other."""
    try:
        # The file itself is replaced, so the lock has to be a different file.
        descriptor = os.open(file.with_name(f".{file.name}.lock"), os.O_RDWR | os.O_CREAT, 0o600)
    except OSError as error:
        raise ConfigError(f"{file}: cannot write the keys: {error.strerror}") from None
    try:
        lock_to_write(descriptor, file)
        yield
    except OSError as error:
        raise ConfigError(f"{file}: cannot write the keys: {error.strerror}") from None
    finally:
        os.close(descriptor)


def _write_keys(file: Path, keys: Sequence[ApiKey]) -> None:
    stored = {
        "schema_version": 1,
        "keys": [asdict(key) | {"scopes": sorted(key.scopes)} for key in keys],
    }
    text = json.dumps(stored, indent=2) + "\n"
    before = file.stat() if file.exists() else None
    with atomic_file(file) as partial:
        partial.touch(mode=_OWNER_ONLY)
        partial.write_text(text, encoding="utf-8")
        if before is not None:
            # The file may have been made readable to the service's group.
            with contextlib.suppress(PermissionError):
                os.chown(partial, -1, before.st_gid)
            partial.chmod(stat.S_IMODE(before.st_mode))

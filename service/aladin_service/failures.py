"""Messages of errors in one line, and the exit codes of the command line."""

from __future__ import annotations

import errno
import os
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from aladin_network.errors import (
    EXTRA_OF,
    AladinError,
    CheckpointError,
    ConfigError,
    DuplicateItemError,
    IndexMismatchError,
    IndexNotReadyError,
    InputError,
    NoSuchTargetError,
    UnknownItemError,
    missing_package,
)
from aladin_service.client_errors import (
    ConflictError,
    NoAccessError,
    NotFoundError,
    RefusedInputError,
)

if TYPE_CHECKING:
    from pydantic import ValidationError

# Number of faults of a request that are described individually.
MAX_FAULTS = 10
# pydantic describes all faults of a validation error, so many faults are counted only.
_MAX_COUNTED = 1000
_MAX_NAME_CHARS = 100
_MAX_MESSAGE_CHARS = 2000
# Messages start with what was sent and end with what is expected: both ends are kept.
_MESSAGE_END_CHARS = 500

# Errors of the system that only an attempt to write can have.
_WRITE_ERRORS = frozenset(
    {errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EEXIST, errno.ENOTEMPTY, errno.EFBIG}
)

JOB_FAILED = 1
USER_MISTAKE = 2

# The error's class hierarchy is searched, so that the most specific entry applies.
EXIT_CODES: dict[type[BaseException], int] = {
    ConfigError: USER_MISTAKE,
    InputError: USER_MISTAKE,
    CheckpointError: USER_MISTAKE,
    IndexNotReadyError: USER_MISTAKE,
    IndexMismatchError: USER_MISTAKE,
    NoSuchTargetError: USER_MISTAKE,
    UnknownItemError: USER_MISTAKE,
    DuplicateItemError: USER_MISTAKE,
    RefusedInputError: USER_MISTAKE,
    NoAccessError: USER_MISTAKE,
    NotFoundError: USER_MISTAKE,
    ConflictError: USER_MISTAKE,
    ModuleNotFoundError: USER_MISTAKE,
    FileNotFoundError: USER_MISTAKE,
    NotADirectoryError: USER_MISTAKE,
    Exception: JOB_FAILED,
}


def exit_code(error: Exception) -> int:
    """Return 2 for errors that the user can fix by calling differently, otherwise 1."""
    return next(EXIT_CODES[kind] for kind in type(error).__mro__ if kind in EXIT_CODES)


def one_line(error: Exception) -> str:
    """Describe an error in one line; an unexpected one includes its class name.

    An error of the system that names a file says whether it was to be written, if that is certain.
    """
    message = cut_message(" ".join(_words(error).split()))
    if isinstance(error, (AladinError, OSError)) and message:
        return message
    if isinstance(error, ModuleNotFoundError) and error.name in EXTRA_OF:
        return missing_package("this", error.name)
    return f"{type(error).__name__}: {message} (use --debug for a traceback)"


def _words(error: Exception) -> str:
    if not isinstance(error, OSError) or not error.strerror:
        return str(error)
    if error.filename is None:
        return error.strerror
    attempt = "cannot write to" if error.errno in _WRITE_ERRORS else "cannot read or write"
    return f"{attempt} {_path(error.filename)}: {error.strerror}"


def _path(name: object) -> str:
    return os.fsdecode(name) if isinstance(name, str | bytes) else str(name)


def describe_invalid(error: ValidationError) -> str:
    """Describe the faults of arguments or of a body, without repeating what was sent."""
    if error.error_count() > _MAX_COUNTED:
        return f"{error.error_count()} fields are invalid"
    faults = error.errors(include_url=False, include_input=False, include_context=False)
    return describe_faults(faults)


def describe_faults(faults: Sequence[Any]) -> str:
    """Describe which fields are wrong and why, from a pydantic validation error's faults.

    The first `MAX_FAULTS` are described, the others are counted.
    """
    described: list[str] = []
    for fault in faults[:MAX_FAULTS]:
        place = fault["loc"]
        if len(place) > 1 and place[0] in ("query", "path"):
            place = place[1:]  # the framework's name for a part of an address
        where = ".".join(_cut(str(part), _MAX_NAME_CHARS) for part in place)
        what = str(fault["msg"]).removeprefix("Value error, ")
        if fault["type"] == "extra_forbidden":
            what = "unknown field"
        described.append(f"{where}: {what}" if where else what)
    if len(faults) > MAX_FAULTS:
        described.append(f"and {len(faults) - MAX_FAULTS} more")
    return "; ".join(described)


def cut_message(message: str) -> str:
    """Shorten a message that repeats a long value; its beginning and end are kept."""
    return _cut(message, _MAX_MESSAGE_CHARS, _MESSAGE_END_CHARS)


def _cut(text: str, most: int, end: int = 0) -> str:
    if len(text) <= most:
        return text
    return f"{text[: most - end - 1]}…{text[len(text) - end :]}"

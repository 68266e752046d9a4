"""Exit codes and one-line messages of the command line's errors."""

from __future__ import annotations

from aladin_network.errors import (
    AladinError,
    CheckpointError,
    ConfigError,
    DuplicateItemError,
    IndexMismatchError,
    IndexNotReadyError,
    InputError,
    NoSuchTargetError,
    UnknownItemError,
)
from aladin_service.client_errors import (
    ConflictError,
    NoAccessError,
    NotFoundError,
    RefusedInputError,
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
    FileNotFoundError: USER_MISTAKE,
    NotADirectoryError: USER_MISTAKE,
    Exception: JOB_FAILED,
}


def exit_code(error: Exception) -> int:
    """Return 2 for errors that the user can fix by calling differently, otherwise 1."""
    return next(EXIT_CODES[kind] for kind in type(error).__mro__ if kind in EXIT_CODES)


def one_line(error: Exception) -> str:
    """Describe an error in one line; an unexpected one includes its class name."""
    message = " ".join(str(error).split())
    if isinstance(error, (AladinError, OSError)) and message:
        return message
    return f"{type(error).__name__}: {message} (use --debug for a traceback)"

"""Exit codes and the one line of a failure."""

from __future__ import annotations

import errno

import pytest

from aladin_network import errors
from aladin_service.failures import exit_code, one_line


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (errors.ConfigError("unknown key"), 2),
        (errors.DataError("a.jsonl", 3, "not JSON"), 2),
        (errors.ImageTooLargeError("a.png", "too many pixels"), 2),
        (errors.CheckpointError("missing"), 2),
        (errors.UnknownItemError("images", "x"), 2),
        (errors.IndexNotReadyError("none"), 2),
        (errors.IndexMismatchError("model", "a", "b"), 2),
        (FileNotFoundError(errno.ENOENT, "No such file", "x"), 2),
        (errors.IndexCorruptError("tokens.npy", "changed"), 1),
        (errors.NonFiniteLossError("teacher", 3, float("nan")), 1),
        (OSError(errno.ENOSPC, "No space left on device"), 1),
        (errors.AladinError("something else"), 1),
        (ZeroDivisionError("division by zero"), 1),
    ],
)
def test_errors_that_a_user_can_fix_exit_with_2_and_others_with_1(
    error: Exception, code: int
) -> None:
    assert exit_code(error) == code


def test_a_message_of_several_lines_is_printed_as_one() -> None:
    assert one_line(errors.InputError("a\n  b\tc")) == "a b c"


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (
            FileNotFoundError(errno.ENOENT, "No such file or directory", "/proc/x"),
            "cannot read or write /proc/x: No such file or directory",
        ),
        (
            PermissionError(errno.EACCES, "Permission denied", b"/a/b"),
            "cannot read or write /a/b: Permission denied",
        ),
        (
            OSError(errno.EROFS, "Read-only file system", "/a"),
            "cannot write to /a: Read-only file system",
        ),
        (OSError(errno.ENOSPC, "No space left on device"), "No space left on device"),
        (ConnectionRefusedError(errno.ECONNREFUSED, "Connection refused"), "Connection refused"),
        (OSError("only words"), "only words"),
    ],
)
def test_an_error_of_the_system_names_the_place_and_the_reason(error: OSError, said: str) -> None:
    assert one_line(error) == said


def test_a_bug_names_its_class_and_how_to_see_more() -> None:
    assert one_line(KeyError("rows")) == "KeyError: 'rows' (use --debug for a traceback)"
    assert one_line(OSError()) == "OSError:  (use --debug for a traceback)"


def test_a_missing_package_is_named_with_the_extra_that_has_it() -> None:
    error = ModuleNotFoundError("No module named 'torch'", name="torch")
    assert exit_code(error) == 2
    assert "torch" in one_line(error)
    assert "aladin-search[cpu]" in one_line(error)
    unknown = ModuleNotFoundError("No module named 'nothing'", name="nothing")
    assert one_line(unknown).startswith("ModuleNotFoundError")

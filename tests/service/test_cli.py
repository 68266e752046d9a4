"""The root of the command line, and how its failures end."""

from __future__ import annotations

import errno
import gc
import sys

import pytest

from aladin_network import errors
from aladin_service import cli
from aladin_service.failures import exit_code, one_line

ABSENT = ModuleNotFoundError("No module named 'torch'", name="torch")


def test_the_interpreter_has_no_objects_to_search_for_cycles_at_exit(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(cli, "app", lambda: sys.exit(3))
    try:
        with pytest.raises(SystemExit):
            cli.main()
        assert gc.get_freeze_count() > 0
    finally:
        gc.unfreeze()


@pytest.mark.parametrize(
    ("error", "code", "says"),
    [
        # A user can fix these.
        (errors.ConfigError("unknown key"), 2, "unknown key"),
        (errors.DataError("a.jsonl", 3, "not JSON"), 2, "not JSON"),
        (errors.UnknownItemError("images", "x"), 2, "'x'"),
        (errors.IndexMismatchError("model", "a", "b"), 2, "model"),
        (errors.InputError("a\n  b\tc"), 2, "a b c"),
        (FileNotFoundError(errno.ENOENT, "None", "/x"), 2, "cannot read or write /x: None"),
        (ABSENT, 2, "aladin-search[train]"),
        # And not these.
        (PermissionError(errno.EACCES, "Denied", b"/a"), 1, "cannot read or write /a: Denied"),
        (OSError(errno.EROFS, "Read-only", "/a"), 1, "cannot write to /a: Read-only"),
        (OSError(errno.ENOSPC, "No space left on device"), 1, "No space left on device"),
        (OSError(), 1, "OSError:  (use --debug for a traceback)"),
        (errors.IndexCorruptError("tokens.npy", "changed"), 1, "tokens.npy"),
        (errors.NonFiniteLossError("teacher", 3, float("nan")), 1, "teacher"),
        (errors.AladinError("something else"), 1, "something else"),
        (KeyError("rows"), 1, "KeyError: 'rows' (use --debug for a traceback)"),
    ],
)
def test_an_error_is_one_line_and_two_if_a_user_can_fix_it(
    error: Exception, code: int, says: str
) -> None:
    assert exit_code(error) == code
    assert says in one_line(error)
    assert "\n" not in one_line(error)

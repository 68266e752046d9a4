"""Names of several files at once."""

from __future__ import annotations

from pathlib import Path

import pytest

from aladin_network.errors import DataError
from aladin_training.data.folder import common_folder, expand


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Files a/8.tar to a/11.tar, a/08.tar and b/[x].tar."""
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    for name in ("a/8.tar", "a/9.tar", "a/10.tar", "a/11.tar", "a/08.tar", "b/[x].tar"):
        (tmp_path / name).touch()
    return tmp_path


@pytest.mark.parametrize(
    ("pattern", "names"),
    [
        ("a/{8..11}.tar", ["a/8.tar", "a/9.tar", "a/10.tar", "a/11.tar"]),
        ("a/{08..11}.tar", ["a/08.tar", None]),
        ("{a,b}/{8,[x]}.tar", ["a/8.tar", None]),
        ("a/{11,8}.tar", ["a/11.tar", "a/8.tar"]),
        ("a/?.tar", ["a/8.tar", "a/9.tar"]),
        ("*/{8,9}.tar", ["a/8.tar", "a/9.tar"]),
        ("*/1*.tar", ["a/10.tar", "a/11.tar"]),
        ("b/[x].tar", ["b/[x].tar"]),
        ("a", ["a"]),
        ("a/12.tar", [None]),
        ("a/{8..12}.tar", [None]),
        ("c/*.tar", [None]),
    ],
)
def test_expand(folder: Path, pattern: str, names: list[str | None]) -> None:
    if None in names:
        with pytest.raises(DataError, match=r"(12|09|\[x\]|\*)\.tar: no such file or folder"):
            expand(folder / pattern)
    else:
        assert expand(folder / pattern) == [folder / name for name in names if name]


@pytest.mark.parametrize(
    ("pattern", "common"),
    [("a/{8..9}.tar", "a"), ("{a,b}/8.tar", ""), ("*/8.tar", ""), ("b/[x].tar", "b")],
)
def test_the_common_folder_is_that_before_the_pattern(
    folder: Path, pattern: str, common: str
) -> None:
    assert common_folder(folder / pattern) == folder / common

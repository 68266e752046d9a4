"""Lines of a large file by their first cell."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from aladin_network.errors import DataError
from aladin_training.data.regions.tables import LineFile
from tests.training.data.regions.region_files import write_lines

ROWS = [["12", "one"], ["7", "two", "more"], ["a b", "x" * 3000], ["ä", ""]]


@settings(max_examples=30)
@given(
    rows=st.dictionaries(
        st.text(st.characters(exclude_characters="\t\n\r", exclude_categories=["Cs"]), min_size=1)
        .filter(str.strip)
        .filter(lambda key: len(key.encode()) < 900),
        st.binary(max_size=40).filter(lambda cell: b"\n" not in cell and b"\r" not in cell),
        min_size=1,
    ),
    line_end=st.sampled_from([b"\n", b"\r\n"]),
    last_line_ends=st.booleans(),
)
def test_lines_are_those_that_were_written(
    tmp_path_factory: pytest.TempPathFactory,
    rows: dict[str, bytes],
    line_end: bytes,
    last_line_ends: bool,
) -> None:
    path = tmp_path_factory.mktemp("lines") / "a.tsv"
    content = line_end.join(key.encode() + b"\t" + cell for key, cell in rows.items())
    path.write_bytes(content + (line_end if last_line_ends else b""))
    lines = LineFile(path)
    assert list(lines.keys) == list(rows)
    for key, cell in rows.items():
        assert b"\t".join(lines.read(key)[1:]) == cell


@pytest.mark.parametrize(
    ("content", "lineidx", "reason"),
    [
        (b"", None, r"a\.tsv: is empty"),
        (b"1\tx\n2\n", None, r"a\.tsv:2: expected a photo's id and a tab, found b'2\\n'"),
        (b"1\tx\n\n", None, r"a\.tsv:2: expected a photo's id and a tab"),
        (b"1\tx\n2\ty\n1\tz\n", None, r"a\.tsv:3: the photo '1' repeats, .* first on line 1"),
        (b"\xff\tx\n", None, r"a\.tsv:1: the id b'\\xff' is not UTF-8"),
        (None, "0\n7\nx\n", r"a\.lineidx:3: expected a whole number, found b'x"),
        (None, "1\n", r"a\.lineidx:1: no line of a\.tsv \(\d+ bytes\) begins at byte 1; delete"),
        (None, "0\n5\n", r"a\.lineidx:2: no line of a\.tsv \(\d+ bytes\) begins at byte 5"),
        (None, "0\n0\n", r"a\.lineidx:2: no line .* begins at byte 0"),
        (None, "0\n999999\n", r"a\.lineidx:2: no line .* begins at byte 999999"),
    ],
)
def test_lines_without_a_key_and_a_lineidx_of_another_file_are_refused(
    tmp_path: Path, content: bytes | None, lineidx: str | None, reason: str
) -> None:
    path = write_lines(tmp_path / "a.tsv", ROWS)
    if content is not None:
        path.write_bytes(content)
    if lineidx is not None:
        path.with_suffix(".lineidx").write_text(lineidx)
    with pytest.raises(DataError, match=reason):
        LineFile(path)


def test_lines_that_are_not_where_they_were_are_refused(tmp_path: Path) -> None:
    path = write_lines(tmp_path / "a.tsv", ROWS)
    lines = LineFile(path)
    path.with_suffix(".lineidx").write_text("0\n" + str(path.read_bytes().index(b"a b\t")) + "\n")
    with pytest.raises(DataError, match=r"a\.tsv:1: photo '12': a\.lineidx skips a line"):
        LineFile(path).read("12")
    path.write_bytes(path.read_bytes()[:-4])
    with pytest.raises(DataError, match=r"a\.tsv:4: photo 'ä': expected 4 bytes, found 0"):
        lines.read("ä")
    with pytest.raises(DataError, match=r"b\.tsv: No such file"):
        LineFile(tmp_path / "b.tsv")

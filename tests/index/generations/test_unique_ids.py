from pathlib import Path

import pytest

from aladin_index.generations.merge import check_ids_differ
from aladin_network.errors import InputError
from aladin_network.types import NullProgress

ONE, TWO, THREE = Path("one"), Path("two"), Path("three")


def test_ids_that_all_differ_pass_and_leave_nothing(tmp_path: Path) -> None:
    ids = {ONE: iter([str(row) for row in range(2500)]), TWO: iter(["a", "A", "a ", "ä"])}
    check_ids_differ(tmp_path, "images", ids, NullProgress())
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("place", [0, 999, 1000, 2499])
def test_an_id_in_two_indexes_is_named_with_both(tmp_path: Path, place: int) -> None:
    last = [f"other {row}" for row in range(2500)]
    last[place] = "7"
    ids = {ONE: iter(["a"]), TWO: iter(map(str, range(10))), THREE: iter(last)}
    with pytest.raises(InputError, match="texts: id '7' is in two and in three"):
        check_ids_differ(tmp_path, "texts", ids, NullProgress())
    assert list(tmp_path.iterdir()) == []

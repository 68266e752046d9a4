import numpy as np
from pyroaring import BitMap

from aladin_index.items.selection import Selection


def test_all_forms_say_the_same() -> None:
    rows = [0, 3, 8, 9, 17]
    mask = np.zeros(19, dtype=np.bool_)
    mask[rows] = True
    selection = Selection.of_mask(mask)
    assert selection.count == 5
    assert selection.rows.tolist() == rows
    assert selection.rows.dtype == np.int64
    # Three bytes for 19 rows, each row's bit counted from the lowest.
    assert selection.bits.tolist() == [2**0 + 2**3, 2**0 + 2**1, 2**1]


def test_a_selection_without_rows() -> None:
    nothing = Selection.of_mask(np.zeros(4, dtype=np.bool_))
    assert (nothing.count, nothing.rows.tolist(), nothing.bits.tolist()) == (0, [], [0])
    assert nothing.mask.tolist() == [False] * 4


def test_a_selection_is_split_at_a_row() -> None:
    selection = Selection(BitMap([0, 3, 4, 9]), 10)
    below, above = selection.split(4)
    assert (below.rows.tolist(), below.size) == ([0, 3], 4)
    assert (above.rows.tolist(), above.size) == ([0, 5], 6)
    assert selection.split(4) == (below, above)  # the same objects
    assert [part.count for part in selection.split(10)] == [4, 0]
    assert [part.count for part in selection.split(0)] == [0, 4]


def test_the_memory_of_all_forms_is_known_before_they_are_made() -> None:
    for count in (0, 1, 7, 8, 1000):
        selection = Selection.of_mask(np.arange(count) % 3 == 0)
        taken = selection.mask.nbytes + selection.rows.nbytes + selection.bits.nbytes
        assert selection.max_bytes == taken + min(2 * selection.count, selection.bits.nbytes)

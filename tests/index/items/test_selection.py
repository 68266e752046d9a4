import numpy as np

from aladin_index.items.selection import Selection


def test_all_forms_say_the_same() -> None:
    rows = [0, 3, 8, 9, 17]
    mask = np.zeros(19, dtype=np.bool_)
    mask[rows] = True
    selection = Selection(mask)
    assert selection.count == 5
    assert selection.rows.tolist() == rows
    assert selection.rows.dtype == np.int64
    # Three bytes for 19 rows, each row's bit counted from the lowest.
    assert selection.bits.tolist() == [2**0 + 2**3, 2**0 + 2**1, 2**1]


def test_both_select_what_each_does() -> None:
    first = Selection(np.array([True, True, False, False]))
    second = Selection(np.array([True, False, True, False]))
    assert (first & second).rows.tolist() == [0]
    assert first.rows.tolist() == [0, 1]
    nothing = Selection(np.zeros(4, dtype=np.bool_))
    assert (nothing.count, nothing.rows.tolist(), nothing.bits.tolist()) == (0, [], [0])


def test_the_memory_of_all_forms_is_known_before_they_are_made() -> None:
    for count in (0, 1, 7, 8, 1000):
        selection = Selection(np.arange(count) % 3 == 0)
        taken = selection.mask.nbytes + selection.rows.nbytes + selection.bits.nbytes
        assert selection.max_bytes == taken

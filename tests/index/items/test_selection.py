from concurrent.futures import ThreadPoolExecutor

import numpy as np
from pyroaring import BitMap

from aladin_index.items.selection import Selection, SelectionCache


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


def selection(count: int) -> Selection:
    return Selection.of_mask(np.zeros(count, dtype=np.bool_))


def test_the_selections_used_last_are_kept() -> None:
    cache: SelectionCache[str] = SelectionCache(3 * selection(80).max_bytes)
    first = selection(80)
    cache.put("a", first)
    cache.put("b", selection(80))
    cache.put("c", selection(80))
    assert cache.get("a") is first
    cache.put("d", selection(80))
    for _ in range(5):  # put again, it counts once
        cache.put("d", selection(80))
    assert [key for key in "abcd" if cache.get(key) is not None] == ["a", "c", "d"]


def test_all_forms_of_a_selection_count() -> None:
    mask = np.zeros(64, dtype=np.bool_)
    mask[:10] = True
    some = Selection.of_mask(mask)
    cache: SelectionCache[str] = SelectionCache(some.max_bytes)
    cache.put("a", some)
    assert cache.get("a") is some
    cache.put("b", Selection.of_mask(np.ones(64, dtype=np.bool_)))  # does not fit, not even alone
    assert cache.get("a") is None
    assert cache.get("b") is None
    cache.put("a", some)
    assert cache.get("a") is some


def test_threads_share_it() -> None:
    cache: SelectionCache[int] = SelectionCache(5 * selection(8).max_bytes)

    def use(first: int) -> None:
        for number in range(first, first + 500):
            cache.put(number % 20, selection(8 + number % 20 // 20))
            found = cache.get((number + 3) % 20)
            assert found is None or found.mask.size == 8

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(use, range(0, 28, 7)))
    assert sum(cache.get(key) is not None for key in range(20)) == 5

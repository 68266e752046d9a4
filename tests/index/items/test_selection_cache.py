import threading

import numpy as np

from aladin_index.items.selection import Selection, SelectionCache


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
    assert [key for key in "abcd" if cache.get(key) is not None] == ["a", "c", "d"]


def test_all_forms_of_a_selection_count() -> None:
    mask = np.zeros(64, dtype=np.bool_)
    mask[:10] = True
    some = Selection.of_mask(mask)
    assert some.max_bytes >= mask.nbytes + some.rows.nbytes + some.bits.nbytes
    cache: SelectionCache[str] = SelectionCache(some.max_bytes)
    cache.put("a", some)
    assert cache.get("a") is some
    cache.put("b", Selection.of_mask(np.ones(64, dtype=np.bool_)))  # does not fit, not even alone
    assert cache.get("a") is None
    assert cache.get("b") is None
    cache.put("a", some)
    assert cache.get("a") is some


def test_what_is_put_again_counts_once() -> None:
    cache: SelectionCache[str] = SelectionCache(2 * selection(80).max_bytes)
    cache.put("a", selection(80))
    for _ in range(5):
        cache.put("b", selection(80))
    assert cache.get("a") is not None


def test_threads_share_it() -> None:
    cache: SelectionCache[int] = SelectionCache(5 * selection(8).max_bytes)
    faults: list[int] = []

    def use(first: int) -> None:
        for number in range(first, first + 500):
            cache.put(number % 20, selection(8 + number % 20 // 20))
            found = cache.get((number + 3) % 20)
            if found is not None and found.mask.size != 8:
                faults.append(number)

    threads = [threading.Thread(target=use, args=(7 * each,)) for each in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert faults == []
    assert sum(cache.get(key) is not None for key in range(20)) == 5

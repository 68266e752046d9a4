"""Which photos are one stack, by name, time and look; copies against a comparison of all pairs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from aladin_index.items.selection import Selection, bitmap_of
from aladin_index.items.stacks import StackIndex, Stacks
from aladin_index.items.tables import StoredItem

BITS = 256
# Of all frequencies and of the lowest 8 x 8: in the first 64 bits.
LOW = 64


class Photos:
    """Photos that are read by their rows."""

    def __init__(self, *items: StoredItem) -> None:
        self.items = [item._replace(row=row) for row, item in enumerate(items)]
        self.read = 0

    def by_rows(self, rows: Sequence[int]) -> list[StoredItem]:
        self.read += len(rows)
        return [self.items[row] for row in rows]

    def stacks(self, selection: Selection | None = None) -> Stacks:
        return StackIndex().read(self, len(self.items), len(self.items), selection)

    def named(self) -> set[frozenset[str]]:
        """The names of each stack of several."""
        return sets_of(self.stacks(), self.items)


def sets_of(stacks: Stacks, items: Sequence[StoredItem]) -> set[frozenset[str]]:
    found = {tuple(sorted(stacks.of(row))) for row in range(len(stacks.roots))}
    return {frozenset(str(items[row].uri) for row in rows) for rows in found if len(rows) > 1}


def bits_of(seed: int) -> NDArray[np.bool_]:
    return np.random.default_rng(seed).random(BITS) < 0.5


def changed(bits: NDArray[np.bool_], low: int, high: int, seed: int = 0) -> NDArray[np.bool_]:
    """Bits of which so many of the lowest frequencies, and of the others, are different."""
    random, bits = np.random.default_rng(seed), bits.copy()
    places = [*random.permutation(LOW)[:low], *(LOW + random.permutation(BITS - LOW)[:high])]
    bits[places] ^= True
    return bits


def photo(uri: str, bits: NDArray[np.bool_] | None = None, **metadata: Any) -> StoredItem:
    fingerprint = None if bits is None else np.packbits(bits).tobytes().hex()
    item = StoredItem(0, uri, uri, None, None, None, None, None, metadata)
    return item._replace(fingerprint=fingerprint)


def taken(second: float, camera: str = "A", source: str = "exif") -> dict[str, Any]:
    minutes, seconds = divmod(int(second), 60)
    taken_at = f"2022-07-14T10:{minutes:02d}:{seconds:02d}"
    return {"taken_at": taken_at, "date_source": source, "camera": camera}


@pytest.mark.parametrize(
    "names",
    [
        ("a/IMG_1234.HEIC", "a/IMG_1234.JPG"),
        ("a/IMG_1234.tif", "a/img_1234.jpg"),
        ("a/IMG_1234.JPG", "a/IMG_E1234.JPG"),
        ("a/IMG_1234.HEIC", "a/IMG_E1234.JPG"),
        ("a/IMG_1234.jpg", "a/IMG_1234-edited.jpg"),
        ("a/IMG_1234.jpg", "a/IMG_1234-bearbeitet.jpg"),
        ("a/IMG_1234.jpg", "a/IMG_1234~2.jpg"),
        ("a/PXL_20220714_101010123.MP.jpg", "a/PXL_20220714_101010123~2.jpg"),
        ("PXL_20220714_101010123.RAW-01.COVER.jpg", "PXL_20220714_101010123.RAW-02.ORIGINAL.tif"),
        ("IMG_20220714_101010_BURST001_COVER.jpg", "IMG_20220714_101010_BURST002.jpg"),
        (
            "00000IMG_00000_BURST20190710101010123_COVER.jpg",
            "00001IMG_00001_BURST20190710101010123.jpg",
        ),
    ],
)
def test_names_of_one_moment_in_one_folder_are_a_stack(names: tuple[str, str]) -> None:
    assert Photos(*map(photo, names)).named() == {frozenset(names)}
    assert Photos(*map(photo, reversed(names))).named() == {frozenset(names)}
    first, second = names
    assert not Photos(photo(first), photo(f"other/{second}")).named()


@pytest.mark.parametrize(
    "names",
    [
        ("a/IMG_1234.jpg", "a/IMG_1235.jpg"),
        ("a/IMG_1234.jpg", "a/IMG_12340.png"),
        ("a/IMG_1234.jpg", "a/IMG_1234(1).jpg"),
        ("snow.1", "snow.2"),  # ids, not names of files
        ("a/IMG_1.jpg", "a/IMG_1.jpg"),  # members of two archives
        ("PXL_20220714_101010123.jpg", "PXL_20220714_101010124.jpg"),
        ("IMG_20220714_101010_BURST001.jpg", "IMG_20220714_101011_BURST002.jpg"),
        ("00000IMG_00000_BURST20190710101010123.jpg", "00001IMG_00001_BURST20190710101010124.jpg"),
    ],
)
def test_other_names_are_not(names: tuple[str, str]) -> None:
    assert not Photos(*map(photo, names)).named()


def test_one_name_of_two_cameras_is_told_apart_by_time_and_else_by_look() -> None:
    pair = ("IMG_0001.HEIC", "IMG_0001.JPG")

    def are_one(first: StoredItem, second: StoredItem) -> bool:
        return Photos(first, second).named() == {frozenset(pair)}

    look, other = bits_of(1), bits_of(2)
    assert are_one(photo(pair[0], look, **taken(0)), photo(pair[1], other, **taken(2)))
    assert not are_one(photo(pair[0], **taken(0)), photo(pair[1], **taken(3)))
    # Times of files and names are not those of the clock.
    of_file = taken(30, source="file")
    assert are_one(photo(pair[0], look, **taken(0)), photo(pair[1], look, **of_file))
    assert are_one(photo(pair[0], look), photo(pair[1], changed(look, 40, 56)))
    assert not are_one(photo(pair[0], look), photo(pair[1], changed(look, 40, 57)))
    # A copy that is edited may show a part.
    edited = photo("IMG_E0001.JPG", other)
    assert Photos(photo("IMG_0001.HEIC", look), edited).named() == {
        frozenset(["IMG_0001.HEIC", "IMG_E0001.JPG"])
    }


def test_a_burst_is_of_one_camera_and_folder_and_looks_like_its_first_photo() -> None:
    look = bits_of(3)
    burst = [photo(f"a/{n}.jpg", changed(look, 20, 25, n), **taken(2 * n)) for n in range(9)]
    others = [
        photo("a/far.jpg", changed(look, 20, 25, 20), **taken(30)),
        photo("a/other camera.jpg", changed(look, 20, 25, 21), **taken(4, "B")),
        photo("b/other folder.jpg", changed(look, 20, 25, 22), **taken(4)),
        photo("a/other look.jpg", bits_of(4), **taken(4)),
        photo("a/no clock.jpg", changed(look, 20, 25, 23), **taken(4, source="file")),
    ]
    # In any order: they are sorted by time.
    mixed = [*burst[::-2], *others, *burst[-2::-2]]
    assert Photos(*mixed).named() == {frozenset(f"a/{n}.jpg" for n in range(9))}


def test_a_drift_of_photos_is_not_one_stack() -> None:
    look, drift = bits_of(5), [bits_of(5)]
    for step in range(1, 12):
        look = look.copy()
        look[20 * step : 20 * (step + 1)] ^= True  # 20 bits from the one before
        drift.append(look)
    copies = Photos(*(photo(f"{n:02d}.jpg", bits) for n, bits in enumerate(drift)))
    assert max(map(len, copies.named())) == 3
    # Nor where each was also taken a second after the one before.
    timed = Photos(*(photo(f"{n:02d}.jpg", b, **taken(n)) for n, b in enumerate(drift)))
    assert max(map(len, timed.named())) == 7  # and two copies of the last


def test_two_hundred_photos_of_a_burst_are_one_stack() -> None:
    look = bits_of(6)
    burst = [photo(f"{n:03d}.jpg", changed(look, 9, 30, n), **taken(n)) for n in range(200)]
    assert [len(each) for each in Photos(*burst).named()] == [200]


def slow_copies(photos: Sequence[NDArray[np.bool_]]) -> list[int]:
    """The first photo of each one's stack: photos that differ little join the nearest leader."""
    leaders: list[int] = []
    joined: list[int] = []
    for row, bits in enumerate(photos):
        near = []
        for leader in leaders:
            different = bits != photos[leader]
            if different.sum() <= 40 and different[:LOW].sum() <= 12:
                near.append((int(different.sum()), leader))
        joined.append(min(near)[1] if near else row)
        if not near:
            leaders.append(row)
    return joined


def test_copies_join_the_nearest_leader_as_by_a_comparison_of_all_pairs() -> None:
    random = np.random.default_rng(7)
    looks = [bits_of(100 + n) for n in range(5)]
    photos = [
        changed(looks[random.integers(5)], int(random.integers(14)), int(random.integers(30)), n)
        for n in range(400)
    ]
    items = Photos(*(photo(f"{n:03d}.jpg", bits) for n, bits in enumerate(photos)))
    expected = slow_copies(photos)
    assert 10 < len(set(expected)) < 390
    assert items.stacks().roots.tolist() == expected


@pytest.mark.parametrize(("low", "high", "joined"), [(12, 28, 1), (12, 29, 0), (13, 20, 0)])
def test_near_copies_end_at_the_thresholds(low: int, high: int, joined: int) -> None:
    look = bits_of(8)
    copies = Photos(photo("a/x.jpg", look), photo("b/y.png", changed(look, low, high)))
    assert len(copies.named()) == joined


def test_a_stack_has_the_photos_that_pass_and_firsts_are_the_first_of_each() -> None:
    names = ["IMG_1.jpg", "IMG_2.jpg", "IMG_1.tif", "IMG_3.jpg", "IMG_1.png", "IMG_2.png"]
    photos = Photos(*map(photo, names))
    stacks = photos.stacks(Selection(bitmap_of(np.array([0, 1, 2, 3])), 6))
    assert [stacks.of(row) for row in range(4)] == [[0, 2], [1], [0, 2], [3]]
    assert stacks.firsts(np.array([4, 3, 5, 2, 1, 0])).tolist() == [0, 1, 2]


def test_photos_that_are_added_join_those_that_were_built_but_not_removed_ones() -> None:
    look, of_2 = bits_of(9), bits_of(10)
    photos = Photos(
        photo("a/1.tif", look),
        photo("a/2.jpg", of_2),
        photo("a/3.jpg", bits_of(11)),
        photo("a/1.jpg", look),  # by its name
        photo("b/copy of 2.jpg", changed(of_2, 3, 3)),
        photo("b/of 3.jpg", bits_of(11)),
        photo("a/3.tif"),
    )
    index, source = StackIndex(), object()
    before = index.read(photos, 3, 3, None)
    after = index.read(photos, 3, 7, None, {2}, source)
    assert sets_of(before, photos.items) == set()
    assert sets_of(after, photos.items) == {
        frozenset(["a/1.tif", "a/1.jpg"]),
        frozenset(["a/2.jpg", "b/copy of 2.jpg"]),
    }
    # A search that began before does not see them.
    assert [before.of(row) for row in range(3)] == [[0], [1], [2]]
    # Nor does it make the others read anything again.
    count = photos.read
    index.read(photos, 3, 3, None)
    index.read(photos, 3, 7, None, {2}, source)
    assert photos.read == count
    # Other changes in the place of these are read anew.
    photos.items[3] = photo("a/3.tif", bits_of(11))._replace(row=3)
    again = index.read(photos, 3, 4, None, set(), object())
    assert sets_of(again, photos.items) == {frozenset(["a/3.jpg", "a/3.tif"])}

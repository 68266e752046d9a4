"""Words of items: their form, the fields they are in, and the rows that have them."""

from __future__ import annotations

import random
from collections.abc import Sequence

import pytest
from pyroaring import BitMap

from aladin_index.items.tables import StoredItem
from aladin_index.items.words import WordIndex, matches, plain_words, words_of


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("Café, CAFE\u0301; Straße", ["cafe", "strasse"]),
        ("IMG_2034-b.jpg", ["img", "2034", "b", "jpg"]),
        ('"a" OR b* NEAR(c', ["a", "or", "b", "near", "c"]),
        ("東京都 x 猫", ["東京", "京都", "x", "猫"]),
        ("서울 사진", ["서울", "사진"]),
        ("\ud800 \0 _", []),
        ("", []),
    ],
)
def test_words_of_a_text(text: str, words: list[str]) -> None:
    assert words_of(text) == words


def item(row: int, text: str | None, uri: str | None = None, **metadata: object) -> StoredItem:
    return StoredItem(row, str(row), uri, None, text, None, None, None, dict(metadata))


def test_the_fields_that_have_words_of_the_query() -> None:
    found = item(0, "A dog", "Pisa/Dog_Rex.jpg", place="Pisa", tags=["Rex", ["dog"], 7], year=2020)
    assert matches(found, ["rex", "dog", "pisa", "2020"]) == [
        ("text", ["dog"]),
        ("uri", ["rex", "dog"]),
        ("metadata.place", ["pisa"]),
        ("metadata.tags", ["rex", "dog"]),
    ]


def test_items_are_read_once_and_up_to_the_row_that_is_asked_for() -> None:
    items = [item(3 + place, f"w{place % 2} both") for place in range(6)]
    read: list[int] = []

    def by_rows(rows: Sequence[int]) -> list[StoredItem]:
        read.extend(rows)
        return [items[row - 3] for row in reversed(rows)]  # in any order

    index = WordIndex(by_rows, 3)
    assert index.find(["w0", "none"], 6, most=9) == [[3, 5], []]
    assert index.find(["w1", "both"], 9, most=9) == [[4, 6, 8], [*range(3, 9)]]
    assert index.find(["both"], 5, most=9) == [[3, 4]]  # an older snapshot
    assert read == [*range(3, 9)]


def test_rows_of_frequent_words_are_not_copied_and_those_of_others_stay_as_they_were() -> None:
    index = WordIndex(lambda rows: [item(row, f"all w{row % 3}") for row in rows])
    first = index.find(["all", "w0", "w1", "none"], 6, most=2)
    assert first == [None, [0, 3], [1, 4], []]
    assert index.find(["all", "w0"], 12, most=12) == [[*range(12)], [0, 3, 6, 9]]
    assert first == [None, [0, 3], [1, 4], []]
    assert index.find(["all", "w0"], 2, most=2) == [[0, 1], [0]]  # as few in a snapshot
    # Removed rows do not count.
    index = WordIndex(lambda rows: [item(row, f"all w{row % 3}") for row in rows])
    gone = BitMap([0, 1, 2, 3, 9])
    found = index.find(["all", "w0", "w1", "none"], 9, 3, gone)
    assert found == [None, [6], [4, 7], []]
    assert index.find(["all"], 7, 3, gone) == [[4, 5, 6]]


NAMES = [
    "2022/IMG_0222.JPG",
    "IMG_0223.JPG",
    "b/img-0222.png",
    "照片一.jpg",
    "Café am See 2.jpg",
    "Screenshot 2022-07-05 at 10.12.33.png",
    "IMG_02223.JPG",
    "no suffix",
]


@pytest.mark.parametrize(
    ("text", "whole", "part"),
    [
        ("IMG_0222", [0, 2], [6]),
        ("img 0222.jpg", [0], []),
        ("IMG_0222.png", [2], []),
        ("IMG_022", [], [0, 1, 2, 6]),
        ("照片一", [3], []),
        ("照片一.jpg", [3], []),
        ("cafe AM see", [], [4]),
        ("afé am", [], [4]),
        ("no suffix", [7], []),
        ("suffi", [], [7]),
        ("suff", [], []),  # four letters
        ("2022-07-05 at 10.12", [], [5]),
        ("22-07-05 at 10.12.33.png", [], [5]),
        ("2022", [], []),  # a folder, and four digits
        ("jpg", [], []),
        ("0223.JPG", [], [1]),
        ("", [], []),
        ("a\tb", [], []),
    ],
)
def test_files_are_found_by_their_names_and_parts_of_them(
    text: str, whole: list[int], part: list[int]
) -> None:
    index = WordIndex(lambda rows: [item(row, None, NAMES[row]) for row in rows])
    assert index.find_names(plain_words(text), len(NAMES)) == (whole, part)
    shown = [matches(item(row, None, NAMES[row]), [], " ".join(plain_words(text))) for row in part]
    assert shown == [[("uri", [" ".join(plain_words(text))])]] * len(part)


def test_names_are_those_up_to_a_row_and_a_part_of_too_many_is_none() -> None:
    read: list[int] = []

    def by_rows(rows: Sequence[int]) -> list[StoredItem]:
        read.extend(rows)
        return [item(row, None, f"a/holiday {row}.jpg") for row in reversed(rows)]

    index = WordIndex(by_rows, 3)
    assert index.find_names(["holiday"], 6) == ([], [3, 4, 5])
    assert index.find_names(["oliday", "5"], 9) == ([], [5])
    assert index.find_names(["holiday", "8"], 8) == ([], [])  # of an older snapshot
    assert index.find_names(["holiday", "8"], 9) == ([8], [])
    assert read == [*range(3, 9)]
    assert index.find_names(["holiday", "1300"], 1400) == ([1300], [])
    assert index.find_names(["holiday"], 1400) == ([], [])


def test_names_are_found_as_by_looking_at_each() -> None:
    chance = random.Random(5)
    names = ["".join(chance.choices("ab1_ .", k=9)) + ".jpg" for _ in range(300)]
    index = WordIndex(lambda rows: [item(row, None, names[row]) for row in rows])
    plain = [" ".join(plain_words(name)) for name in names]
    stems = [" ".join(plain_words(name[:-4])) for name in names]
    for _ in range(200):
        words = plain_words("".join(chance.choices("ab1_ ", k=chance.randrange(3, 9))))
        key = " ".join(words)
        whole = [row for row, stem in enumerate(stems) if words and key == stem]
        is_long = len(key.replace(" ", "")) >= 5
        part = [r for r, name in enumerate(plain) if is_long and key in name and r not in whole]
        assert index.find_names(words, 300) == (whole, part), key

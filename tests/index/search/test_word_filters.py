"""Dates and places in the words of a query, and what they leave."""

from __future__ import annotations

from typing import Any

import pytest

from aladin_index.search.word_filters import KnownValues, read_filters

KNOWN = KnownValues(
    years=range(2010, 2024),
    places={
        "bern": ("city", "Bern"),
        "zurich": ("city", "Zürich"),
        "new york": ("place", "New York"),
        "st gallen": ("folder", "St. Gallen"),
        "snow": ("folder", "Snow"),
        "2022 bern": ("folder", "2022 Bern"),
        "dogs": ("folder", "Dogs"),
        "summer trip": ("folder", "Summer_Trip"),
    },
)


def dates(start: str, end: str) -> dict[str, Any]:
    return {"taken_at": {"gte": start, "lt": end}}


Y2019, JULY = dates("2019", "2020"), dates("2022-07", "2022-08")
FIFTH = dates("2022-07-05", "2022-07-06")


@pytest.mark.parametrize(
    ("text", "rest", "read"),
    [
        # Dates.
        ("dogs on grass 2019", "dogs on grass", {"2019": Y2019}),
        ("2019", "2019", {"2019": Y2019}),
        ("cat from 2019", "cat", {"from 2019": Y2019}),
        ("a cat, july 2022", "a cat", {"july 2022": JULY}),
        ("a cat in Jul. 2022 asleep", "a cat asleep", {"in Jul. 2022": JULY}),
        ("Hund im Juli 2022", "Hund", {"im Juli 2022": JULY}),
        ("chien en juillet 2022", "chien", {"en juillet 2022": JULY}),
        ("5 July 2022", "5 July 2022", {"5 July 2022": FIFTH}),
        ("July 5th, 2022 cat", "cat", {"July 5th, 2022": FIFTH}),
        ("Katze am 5. Juli 2022", "Katze", {"am 5. Juli 2022": FIFTH}),
        ("chat le 5 juillet 2022", "chat", {"le 5 juillet 2022": FIFTH}),
        ("2022-07-05 cat", "cat", {"2022-07-05": FIFTH}),
        ("cat 2022-07", "cat", {"2022-07": JULY}),
        ("cat März 2020", "cat", {"März 2020": dates("2020-03", "2020-04")}),
        ("août 2012 chat", "chat", {"août 2012": dates("2012-08", "2012-09")}),
        ("cat december 2019", "cat", {"december 2019": dates("2019-12", "2020-01")}),
        ("cat 31 december 2019", "cat", {"31 december 2019": dates("2019-12-31", "2020-01-01")}),
        # Not dates: of years without photos, impossible ones, parts of words and numbers.
        ("cat 1999", "cat 1999", {}),
        ("cat 30 february 2020", "cat 30 february 2020", {}),
        ("cat 2022-13", "cat 2022-13", {}),
        ("IMG_2019 x2019 2019/3 12019", "IMG_2019 x2019 2019/3 12019", {}),
        ("they may march in july", "they may march in july", {}),
        # Places.
        ("two dogs in Bern", "two dogs", {"in Bern": {"city": "Bern"}}),
        ("zwei Hunde in zürich, rot", "zwei Hunde rot", {"in zürich": {"city": "Zürich"}}),
        ("in the snow", "in the snow", {"in the snow": {"folder": "Snow"}}),
        ("a boy in snow boots", "a boy in snow boots", {}),
        ("snow in new york and a dog", "snow and a dog", {"in new york": {"place": "New York"}}),
        ("Kirche bei St. Gallen", "Kirche", {"bei St. Gallen": {"folder": "St. Gallen"}}),
        ("église à Bern", "église", {"à Bern": {"city": "Bern"}}),
        ("Bern", "Bern", {"Bern": {"city": "Bern"}}),
        ("dogs", "dogs", {}),
        ("summer trip", "summer trip", {"summer trip": {"folder": "Summer_Trip"}}),
        ("2022 Bern", "2022 Bern", {"2022 Bern": {"folder": "2022 Bern"}}),
        ("Bern dogs", "Bern dogs", {}),
        # Both.
        ("cat in bern 2019", "cat", {"in bern": {"city": "Bern"}, "2019": Y2019}),
        ("Bern 2019", "Bern 2019", {"Bern": {"city": "Bern"}, "2019": Y2019}),
        (
            "from 2019 or July 2022",
            "from 2019 or July 2022",
            {"from 2019": Y2019, "July 2022": JULY},
        ),
        ("", "", {}),
        (" , ", " , ", {}),
    ],
)
def test_what_is_read_and_what_is_left(text: str, rest: str, read: dict[str, Any]) -> None:
    found = read_filters(text, KNOWN)
    assert {each.words: each.filter for each in found.read} == read
    assert all(text[each.start : each.end] == each.words for each in found.read)
    assert found.rest == rest
    # Each character of the rest is at its place in the text, but for the spaces between pieces.
    for number, character in enumerate(rest):
        assert text[found.place(number)] == character or character == " "


def test_words_that_are_not_to_be_read_stay_words() -> None:
    found = read_filters("a cat in Bern, July 2022", KNOWN, ["IN bern"])
    assert (found.rest, [each.words for each in found.read]) == ("a cat in Bern", ["July 2022"])
    assert read_filters("Bern 2019", KNOWN, ["Bern", "2019"]).read == []
    assert read_filters("2022 Bern", KNOWN, ["2022 Bern"]).rest == "2022 Bern"


def test_of_several_dates_one_has_to_fit_and_all_places() -> None:
    found = read_filters("cat in Bern in 2019 or 2020", KNOWN)
    other = dates("2020", "2021")
    assert found.filter() == {"and": [{"city": "Bern"}, {"or": [Y2019, other]}]}


def test_nothing_is_read_where_nothing_is_known() -> None:
    nothing = KnownValues(range(0), {})
    assert read_filters("cat in Bern 2019", nothing).read == []
    joined = nothing.joined(KNOWN).joined(KnownValues(range(2030, 2031), {"bern": ("x", "y")}))
    assert (joined.years, joined.places["bern"]) == (range(2010, 2031), ("city", "Bern"))

"""Dates and places in the words of a query, which become filters: "two dogs in Bern, July 2022".

The rules are small, for English, German and French, and read only what the index has:

* a day, a month or a year with its number, in a year from which there are photos
  ("2019", "in July 2022", "5. Juli 2022", "5 juillet 2022", "2022-07-05"),
* after a preposition, at the end of a phrase, the value of a field of places or the name of a
  folder ("in Bern", "bei Bern", "à Berne"),
* a place that is all that is left ("Bern 2022"), and the name of a folder of several words, or with
  digits, that is the whole text ("2022 Bern").

What was read is no word of the query any more; a query of nothing else keeps its words, which order
what passes the filters.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Iterator, Mapping, Sequence
from datetime import date
from typing import Any, NamedTuple

from aladin_index.items.words import plain_words
from aladin_index.search.results import ReadWords

# Field of the folders that a photo is in; and those whose values are places, which count first.
FOLDER, TAKEN_AT = "folder", "taken_at"
PLACE_FIELDS = ("place", "location", "city", "state", "country", FOLDER)

_MONTHS = [
    "january jan januar janvier janv jänner",
    "february feb februar février fevrier févr",
    "march mar märz maerz mrz mars",
    "april apr avril avr",
    "may mai",
    "june jun juni juin",
    "july jul juli juillet juil",
    "august aug août aout",
    "september sep sept septembre",
    "october oct oktober okt octobre",
    "november nov novembre",
    "december dec dezember dez décembre decembre déc",
]
_MONTH_OF = {word: number for number, words in enumerate(_MONTHS, 1) for word in words.split()}
_MONTH = "|".join(sorted(_MONTH_OF, key=len, reverse=True))
_YEAR = r"(?:19|20)\d\d"
_NTH = r"(?:\.|st|nd|rd|th|er)?"
_DATE = re.compile(
    rf"(?<![\w./-])(?:(?:in|on|from|during|of|im|am|vom|von|aus|en|du|de|le|au)\s+)?(?:"
    rf"(?P<iso>{_YEAR}-\d\d(?:-\d\d)?)"
    rf"|(?:(?P<day>\d{{1,2}}){_NTH}\s+(?:of\s+)?)?(?P<month>{_MONTH})\b\.?,?\s+"
    rf"(?:(?P<nth>\d{{1,2}}){_NTH},?\s+)?(?:of\s+)?(?P<year>{_YEAR})"
    rf"|(?P<only>{_YEAR}))(?![\w/-]|\.\w)",
    re.IGNORECASE,
)
_PREPOSITIONS = "in|at|from|near|im|bei|aus|auf|à|au|aux|en|dans|de"
_BEFORE_PLACE = re.compile(
    rf"(?<!\w)(?:{_PREPOSITIONS})\s+(?:(?:the|der|den|dem|la|le|les)\s+)?", re.IGNORECASE
)
_WORD = re.compile(r"[^\W_]+")
_PHRASE_ENDS = re.compile(
    rf"\s*(?:$|[,;.!?]|\b(?:and|or|with|und|oder|mit|et|ou|avec|{_PREPOSITIONS})\b)", re.IGNORECASE
)
# Words of the longest place that is looked for.
_MOST_WORDS = 6
_EDGES = " \t\r\n,;"
# A piece of these alone is none.
_JOINING = frozenset(["and", "or", "und", "oder", "et", "ou", "in", "im", "en"])


class KnownValues(NamedTuple):
    """What the words of a query may name.

    Attributes:
        years: Years from the first to the last photo that has a date.
        places: Field and value by the words of the value as `plain_words`, joined by spaces.
    """

    years: range
    places: Mapping[str, tuple[str, str]]

    def joined(self, other: KnownValues) -> KnownValues:
        """Return what either has."""
        years = [*self.years, *other.years]
        span = range(min(years), max(years) + 1) if years else range(0)
        return KnownValues(span, {**other.places, **self.places})


class ReadText(NamedTuple):
    """A text, and what was read in it.

    Attributes:
        read: The words that became filters, in their order.
        pieces: First character of each piece of the text that is left, and the one after its last.
        rest: These pieces, with a space between them; the whole text if nothing is left.
    """

    read: list[ReadWords]
    pieces: list[tuple[int, int]]
    rest: str

    def filter(self) -> dict[str, Any]:
        """Return the filter of all that was read; of several dates one has to fit."""
        dates = [each.filter for each in self.read if TAKEN_AT in each.filter]
        others = [each.filter for each in self.read if TAKEN_AT not in each.filter]
        return {"and": [*others, *([{"or": dates}] if dates else [])]}

    def place(self, character: int) -> int:
        """Return where in the text a character of the rest is."""
        starts = [0]
        for start, end in self.pieces:
            starts.append(starts[-1] + end - start + 1)
        number = min(bisect_right(starts, character), len(self.pieces)) - 1
        return self.pieces[number][0] + character - starts[number]


def read_filters(text: str, known: KnownValues, unread: Sequence[str] = ()) -> ReadText:
    """Read the dates and places in a text.

    Args:
        text: Words of a query.
        known: What they may name.
        unread: Words, as `ReadWords.words` has them, that are not to be read.
    """
    kept = {" ".join(plain_words(each)) for each in unread}

    def wanted(found: Iterator[ReadWords]) -> list[ReadWords]:
        return [each for each in found if " ".join(plain_words(each.words)) not in kept]

    read = wanted(_whole(text, (0, len(text)), known, is_all=True))
    if not read:
        read = wanted(_dates(text, known.years))
        read += wanted(_places(text, known, [(each.start, each.end) for each in read]))
        left = _left(text, read)
        if read and len(left) == 1:
            read += wanted(_whole(text, left[0], known, is_all=False))
    read.sort(key=lambda each: each.start)
    pieces = _left(text, read) or [(0, len(text))]
    return ReadText(read, pieces, " ".join(text[start:end] for start, end in pieces))


def _dates(text: str, years: range) -> Iterator[ReadWords]:
    for found in _DATE.finditer(text):
        part = found.groupdict()
        if part["iso"]:
            numbers = [int(each) for each in part["iso"].split("-")]
        else:
            month = _MONTH_OF.get((part["month"] or "").lower())
            day = part["day"] or part["nth"]
            given = (part["year"] or part["only"], month, day if month else None)
            numbers = [int(each) for each in given if each is not None]
        period = _period(numbers)
        if period is not None and numbers[0] in years:
            start, end = period
            filter = {TAKEN_AT: {"gte": start, "lt": end}}
            yield ReadWords(words=found.group(), start=found.start(), filter=filter)


def _period(numbers: Sequence[int]) -> tuple[str, str] | None:
    """Return the first and the next date of a year, month or day, or None if there is none."""
    year, *rest = numbers
    try:
        if not rest:
            return f"{year}", f"{year + 1}"
        first = date(year, rest[0], rest[1] if len(rest) > 1 else 1)
    except ValueError:
        return None
    if len(rest) > 1:
        following = date.fromordinal(first.toordinal() + 1)
        return first.isoformat(), following.isoformat()
    following = date(year + first.month // 12, first.month % 12 + 1, 1)
    return f"{first:%Y-%m}", f"{following:%Y-%m}"


def _places(text: str, known: KnownValues, taken: Sequence[tuple[int, int]]) -> Iterator[ReadWords]:
    """Yield the places after prepositions, each as long as possible."""
    place = 0
    for found in _BEFORE_PLACE.finditer(text):
        if found.start() < place:
            continue
        words = list(_WORD.finditer(text, found.end()))[:_MOST_WORDS]
        for last in reversed(words):
            end = last.end()
            named = known.places.get(" ".join(plain_words(text[found.end() : end])))
            date_follows = any(not text[end:start].strip(_EDGES) for start, _ in taken)
            if named and (_PHRASE_ENDS.match(text, end) or date_follows):
                yield _read_place(text, (found.start(), end), named)
                place = end
                break


def _whole(
    text: str, piece: tuple[int, int], known: KnownValues, *, is_all: bool
) -> Iterator[ReadWords]:
    """Yield a place that is all of a piece; one word as all of a text is no name of a folder."""
    key = " ".join(plain_words(text[slice(*piece)]))
    named = known.places.get(key)
    is_plain_word = key.isalpha()
    if named and not (is_all and named[0] == FOLDER and is_plain_word):
        yield _read_place(text, piece, named)


def _read_place(text: str, piece: tuple[int, int], named: tuple[str, str]) -> ReadWords:
    field, value = named
    start, end = piece
    return ReadWords(words=text[start:end], start=start, filter={field: value})


def _left(text: str, read: Sequence[ReadWords]) -> list[tuple[int, int]]:
    """Return the pieces of a text that were not read, without white space and commas around."""
    borders = sorted((each.start, each.end) for each in read)
    starts = [0, *(end for _, end in borders)]
    ends = [*(start for start, _ in borders), len(text)]
    pieces: list[tuple[int, int]] = []
    for start, end in zip(starts, ends, strict=True):
        piece = text[start:end]
        inner = piece.strip(_EDGES)
        if not _JOINING.issuperset(plain_words(inner)):
            first = start + piece.index(inner)
            pieces.append((first, first + len(inner)))
    return pieces

"""Negation in the words of a query: "a dog without a leash", "two people, no dog".

A network that is trained on captions hardly reads negation, because captions say what is there.
The words are therefore split into what hits have and what they do not have, which a search of
several terms takes. The split is offered with the answer and never made by itself.

The rules are for English, and small. What is negated follows "without", "with no", "but no", "and
no", or "no" or "not" after a comma: a run of words up to punctuation, a conjunction, a preposition
or a participle. A text that says nothing besides, and expressions such as "no parking sign", are
not split.
"""

from __future__ import annotations

import re

from aladin_index.search.results import SuggestedTerm

# Texts without one of these words are not looked at any further.
NEGATION_WORD = re.compile(r"\b(?:without|no|not)\b", re.IGNORECASE)

# Terms that a search takes, with what hits have.
_MOST_PARTS = 8

_NEGATION = re.compile(
    r"(?:(?:[,;]\s*|\b(?:but|and|with)\s+)(?:without|no|not)|\bwithout)\b\s+", re.IGNORECASE
)
_MORE = re.compile(r"\s*(?:,\s*)?\b(?:or|nor)\s+", re.IGNORECASE)
_DETERMINER = re.compile(r"(?:a|an|any|the|his|her|its|their)\s+", re.IGNORECASE)
# No spaces are before punctuation.
_SPACES = re.compile(r"\s+(?=[,;.]|$)")
# "of" stays within what is negated: "without a pair of shoes".
_WORD = re.compile(r"[^\W_]+(?:['\u2019-][^\W_]+)*(?=\W|$)")


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


_ENDS = _words(
    """
    about above across after against along among and around as at before behind below beneath beside
    between but by down during for from in inside into is are was were near next nor on onto or over
    that through to toward towards under underneath until up which while who with within without
    """
)
# What begins like a negation, and is none of a thing: "no longer", "without a doubt".
_NO_THINGS = _words(
    """
    doubt entry exception less longer matter more much one only parking smoking trace very way
    """
)


def suggest_split(text: str) -> list[SuggestedTerm] | None:
    """Split a text at its negations: what hits have, then each thing that they do not have.

    None if the text negates nothing by the rules, or nothing but that.
    """
    kept: list[str] = []
    negated: list[SuggestedTerm] = []
    place = 0
    for match in _NEGATION.finditer(text):
        if match.start() < place:
            continue
        ends = _things(text, match, negated)
        if ends is None:
            return None
        kept.append(text[place : match.start()])
        place = ends
    if not 0 < len(negated) < _MOST_PARTS:
        return None
    wanted = _SPACES.sub("", " ".join(" ".join([*kept, text[place:]]).split())).strip(" ,;.")
    if not wanted or NEGATION_WORD.search(wanted):
        return None
    return [SuggestedTerm(role="all", text=wanted, source=wanted), *negated]


def _things(text: str, negation: re.Match[str], negated: list[SuggestedTerm]) -> int | None:
    """Add what a negation is of, joined by "or", to `negated`.

    Returns the character after the last thing, or None if there is none.
    """
    source, start = negation.start(), negation.end()
    while True:
        if determiner := _DETERMINER.match(text, start):
            start = determiner.end()
        end = _end_of_thing(text, start)
        if end is None:
            return None
        of_text = text[source:end].strip(" ,;")
        negated.append(SuggestedTerm(role="not", text=text[start:end], source=of_text))
        more = _MORE.match(text, end)
        if more is None:
            return end
        source, start = end, more.end()


def _end_of_thing(text: str, start: int) -> int | None:
    """Return the character after the words of a thing, or None if there are no such words."""
    end, place = None, start
    while word := _WORD.match(text, place):
        lowered = word.group().lower()
        is_first = end is None
        if lowered in _ENDS or (is_first and lowered in _NO_THINGS):
            break
        if lowered.endswith("ing") and len(lowered) > 4:
            break  # "without a leash running"; "without wearing a hat" is left as it is
        end = place = word.end()
        if place < len(text) and text[place].isspace():
            place += 1
    return end

"""Noun phrases of captions, shorter texts made of them, and the photos that these hold for.

The rules are for English and need no model. A phrase is a run of words between function words,
punctuation and verbs; its last word is its noun. A text without such words is one phrase.
"""

from __future__ import annotations

import random
import re
from collections.abc import Iterable, Sequence
from typing import NamedTuple


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


_DETERMINERS = _words(
    """
    a an the his her their its my our your this that these those some another each every one
    """
)
# Words that are no part of a phrase: prepositions, conjunctions, pronouns, auxiliaries, adverbs;
# words for the photo itself; and places inside it.
_FUNCTION_WORDS = _words(
    """
    about above across after against all along alongside amid among amongst and around as at away be
    because been before behind being below beneath beside besides between beyond both but by can
    down during each for from had has have he her here herself him himself how i if in inside into
    is are was were am it itself just me near nearby next not of off on onto or other others out
    outside over past she so someone something than that their them themselves then there they this
    through throughout to together too toward towards under underneath until up upon very we what
    when where which while whilst who whose with within without you
    image images photo photograph photos picture pictures scene shot view see seen
    back background bottom corner distance edge foreground front left middle right side top
    """
)
_PREPOSITIONS = _words(
    """
    above across against along among around at behind below beneath beside between by for from in
    inside into near of off on onto over through to toward towards under up upon with within without
    and or
    """
)
# Verbs of captions whose form in -s could pass for a plural noun.
_VERBS = _words(
    """
    balance bike bite carry catch chase climb come cover cross dance dig dive do drink eat fall
    float fly follow get give go grab hang hit hold jump kick lay lead leap lean lick lie look make
    move paddle pass perform play point pose prepare pull push race reach read rest ride roll run
    shake show sing sit skate ski sleep slide smile splash stand stare stick surf swim swing take
    talk throw touch travel try turn use wade wait walk watch wear work wrestle
    """
)
_COLOURS = _words(
    "beige black blue brown gold gray green grey orange pink purple red silver tan white yellow"
)
_PLURALS = _words("people men women children")
_WORD = re.compile(r"[^\W_]+(?:['\u2019-][^\W_]+)*")
# Shares of the kinds of shorter texts: a part of the caption with several phrases, and one phrase.
_SEVERAL_PHRASES = 0.3
_KEEP_MODIFIER = 0.6
_KEEP_DETERMINER = 0.6
_NOUN_ALONE = 0.15
_MODIFIER_ALONE = 0.05


class Phrase(NamedTuple):
    """A noun phrase of a text, from its determiner, if it has one, to its noun, the last word."""

    start: int
    end: int
    determiner: str
    words: tuple[str, ...]

    @property
    def noun(self) -> str:
        """The noun in lower case, plural as singular."""
        return _singular(self.words[-1].lower())

    @property
    def meaning(self) -> frozenset[str]:
        """The words in lower case, plural nouns as singular ones."""
        return frozenset(_singular(word.lower()) for word in self.words)


class _Open:
    """The phrase that is being read: its determiner, and the words after it."""

    def __init__(self) -> None:
        self.determiner: re.Match[str] | None = None
        self.words: list[re.Match[str]] = []

    def closed(self) -> list[Phrase]:
        """Return the phrase, or nothing if it has no word."""
        words, determiner = self.words, self.determiner
        # "a man dressed in": a participle at the end belongs to what follows.
        while len(words) > 1 and words[-1].group().lower().endswith("ed"):
            words.pop()
        if not words:
            return []
        first, given = (determiner or words[0]), (determiner.group() if determiner else "")
        said = tuple(match.group() for match in words)
        return [Phrase(first.start(), words[-1].end(), given, said)]

    def goes_on(self, word: str, before: str) -> bool:
        """Tell whether a word belongs to the phrase; `before` is the word before it."""
        if word == "and" and self.words and before in _COLOURS:
            return True  # "a black and white dog" is one phrase
        if word in _DETERMINERS or word in _FUNCTION_WORDS:
            return False
        return not _is_verb(word, before, bool(self.words), self.determiner is not None)


def find_phrases(text: str) -> list[Phrase]:
    """Find the noun phrases of a text, in order."""
    found: list[Phrase] = []
    phrase = _Open()
    before, end = "", 0  # the word before the present one, in lower case; "" after punctuation
    for match in _WORD.finditer(text):
        word = match.group().lower()
        if text[end : match.start()].strip():
            found += phrase.closed()
            phrase, before = _Open(), ""
        if not phrase.goes_on(word, before):
            found += phrase.closed()
            phrase = _Open()
            phrase.determiner = match if word in _DETERMINERS else None
        elif word != "and":
            phrase.words.append(match)
        before, end = word, match.end()
    return found + phrase.closed()


def draw_short_text(caption: str, generator: random.Random) -> str | None:
    """Draw a text that is shorter than a caption and follows from it, or None.

    It is a part of the caption, of several phrases without some of their adjectives, or a single
    phrase, with or without its article and some adjectives; in some cases the noun or an adjective
    alone. Without adjectives, because where all phrases have one, as a colour, training would learn
    nothing of the other words in texts of several phrases.
    """
    phrases = find_phrases(caption)
    if not phrases:
        return None
    if len(phrases) > 1 and generator.random() < _SEVERAL_PHRASES:
        kept = generator.randint(1, len(phrases))
        first = generator.randrange(len(phrases) - kept + 1)
        short, end = "", phrases[first].start
        for phrase in phrases[first : first + kept]:
            short += caption[end : phrase.start] + _fewer_words(phrase, generator, 1.0)
            end = phrase.end
    else:
        short = _shorter_phrase(generator.choice(phrases), generator)
    return short if short != caption else None


def _shorter_phrase(phrase: Phrase, generator: random.Random) -> str:
    *modifiers, noun = phrase.words
    kind = generator.random()
    if kind < _NOUN_ALONE:
        return noun
    if kind > 1 - _MODIFIER_ALONE and modifiers:
        return generator.choice(modifiers)
    return _fewer_words(phrase, generator, _KEEP_DETERMINER)


def _fewer_words(phrase: Phrase, generator: random.Random, keep_determiner: float) -> str:
    """Leave out some adjectives, and the determiner unless it is kept by chance."""
    *modifiers, noun = phrase.words
    words = [word for word in modifiers if generator.random() < _KEEP_MODIFIER] + [noun]
    if phrase.determiner and generator.random() < keep_determiner:
        determiner = phrase.determiner
        if determiner.lower() in ("a", "an"):
            determiner = "an" if words[0][0].lower() in "aeiou" else "a"
        words.insert(0, determiner)
    return " ".join(words)


class Wording:
    """The phrases in the captions of a photo, by which shorter texts are judged."""

    def __init__(self, captions: Iterable[str]) -> None:
        """Read the captions of one photo."""
        meanings = {phrase.meaning for text in captions for phrase in find_phrases(text)}
        self._phrases: Sequence[frozenset[str]] = list(meanings)

    def holds(self, meanings: Iterable[frozenset[str]]) -> bool:
        """Tell whether every phrase is a part of a phrase in a caption.

        "a red ball" holds if one mentions "a small red ball", not "a red dog and a ball".
        """
        return all(any(asked <= said for said in self._phrases) for asked in meanings)


def meanings_of(text: str) -> tuple[frozenset[str], ...]:
    """Return the meanings of a text's phrases."""
    return tuple(phrase.meaning for phrase in find_phrases(text))


def _is_verb(word: str, before: str, has_run: bool, has_determiner: bool) -> bool:
    """Tell whether a word is a verb, by its ending and the words before it."""
    if word.endswith("ing") and len(word) > 4:
        # "a running dog" and "in swimming trunks" have an adjective, "is running" a verb.
        return has_run or not (has_determiner or before in _PREPOSITIONS)
    if has_run:
        is_plural = before in _PLURALS or before.endswith("s")
        return bool(_stems(word) & _VERBS) or (is_plural and word in _VERBS)
    return not has_determiner and before not in _PREPOSITIONS and bool(_stems(word) & _VERBS)


def _stems(word: str) -> set[str]:
    """Return the forms that a verb in -s may come from."""
    if not word.endswith("s"):
        return set()
    if word.endswith("ies"):
        return {word[:-3] + "y"}
    return {word[:-1], word[:-2]} if word.endswith("es") else {word[:-1]}


def _singular(word: str) -> str:
    if len(word) < 4 or not word.endswith("s") or word.endswith(("ss", "us", "is")):
        return word
    if word.endswith("ies"):
        return word[:-3] + "y"
    return word[:-2] if word.endswith(("ches", "shes", "xes", "sses")) else word[:-1]

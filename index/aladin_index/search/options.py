"""Search options shared by requests, the command line, the clients and the searcher.

A new option is a field here and its effect in a stage of the search; HTTP, the command line, the
tools of agents and Python take its name, bounds and description from here.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, field, fields
from itertools import chain
from typing import (
    Annotated,
    Any,
    Generic,
    Literal,
    NamedTuple,
    TypedDict,
    TypeVar,
    get_args,
    get_origin,
    get_type_hints,
)

from annotated_types import Ge, GroupedMetadata, Gt, Le
from pydantic import (
    Field,
    StringConstraints,
    ValidationError,
    ValidatorFunctionWrapHandler,
    WrapValidator,
)
from pydantic_core import PydanticCustomError

from aladin_network.errors import InputError, brief
from aladin_network.types import Target

Q = TypeVar("Q", covariant=True)

MAX_K = 1000
MAX_FACETS = 100
MAX_CANDIDATES = 10_000
# Largest collection that is searched exhaustively: the bounds of a million photos take a quarter of
# a second for each query, and half a minute to be computed.
MAX_ITEMS = 300_000


@dataclass(frozen=True)
class RequestLimit(GroupedMetadata):
    """Largest value that an HTTP request may use; a search in this process may exceed it.

    Attributes:
        most: Largest value.
    """

    most: float

    def __iter__(self) -> Iterator[Le]:
        """Yield the bound in the form that pydantic reads."""
        yield Le(self.most)


def candidates_from(given: str | None) -> int | Literal["exhaustive"] | None:
    """Read the number of candidates from a command line.

    Raises:
        InputError: If it is neither a whole number nor "exhaustive".
    """
    if given is None or given == "exhaustive":
        return given
    if not given.isascii() or not given.isdigit():
        raise InputError(f"candidates: expected a whole number or exhaustive, got {brief(given)}")
    return int(given)


def _number_or_exhaustive(value: object, validate: ValidatorFunctionWrapHandler) -> object:
    """Name both choices in one error of a request, in place of one error for each."""
    try:
        return validate(value)
    except ValidationError:
        expected = f"expected a whole number from 1 to {MAX_CANDIDATES:,}, or exhaustive"
        raise PydanticCustomError("candidates", "{expected}", {"expected": expected}) from None


@dataclass(frozen=True, kw_only=True)
class SearchOptions:
    """Search options; bounds and meaning are documented with each option's type."""

    k: Annotated[int, Ge(1), RequestLimit(MAX_K), Field(description="Number of hits.")] = 10
    offset: Annotated[
        int, Ge(0), RequestLimit(10_000), Field(description="Hits to skip, for the next page.")
    ] = 0
    candidates: Annotated[
        Annotated[int, Ge(1), RequestLimit(MAX_CANDIDATES)] | Literal["exhaustive"] | None,
        WrapValidator(_number_or_exhaustive),
        Field(
            description="Candidates that the first stage passes to the second; null takes the"
            " index's tuned number. `exhaustive` finds the best hits by the second stage among all"
            " items, of which those are scored that can be among the hits."
        ),
    ] = None
    rerank: Annotated[
        bool, Field(description="Whether the second stage orders the candidates.")
    ] = True
    fusion: Annotated[
        float | None,
        Ge(0),
        Le(1),
        Field(
            description="Weight of the alignment score, by default the fitted one; 1 is the papers'"
            " rule."
        ),
    ] = None
    explain: Annotated[
        bool, Field(description="Whether hits carry the region that each word matched best.")
    ] = False
    filter: Annotated[
        dict[str, Any],
        Field(
            default_factory=dict[str, Any],
            description="Metadata that a hit must have. Each field takes a value, a list of values"
            " of which one has to match, or comparisons: eq, ne, in, nin, gt, gte, lt, lte, exists."
            " Filters are combined by and, or (lists of filters) and not.",
            examples=[{"or": [{"city": "Pisa"}, {"year": {"gte": 2020}}]}],
        ),
    ] = field(default_factory=dict[str, Any])
    timeout_ms: Annotated[
        float | None,
        Gt(0),
        RequestLimit(600_000),
        Field(
            description="Time for the answer. If it does not allow the second stage, hits keep the"
            " first stage's order, and `degraded` contains rerank_timeout."
        ),
    ] = None
    min_probability: Annotated[
        float | None,
        Ge(0),
        Le(1),
        Field(
            description="Least probability of a hit, in a calibrated index. `offset` and `k` count"
            " before hits are left out, so a page may have fewer hits, or none. If the calibration"
            " does not apply to the query, no hit is left out, and `degraded` contains"
            " min_probability."
        ),
    ] = None

    lexical: Annotated[
        float | None,
        Ge(0),
        Le(1),
        Field(
            description="Weight of rare words of a text query, such as names, that an item's own"
            " text, file name or metadata has; with 0, they are not searched, and by default only"
            " in an index that follows folders. With 1, an item that alone has a word passes all"
            " items that have none. With any weight, a file whose name is the whole text is the"
            " first hit, followed by those whose name the text is a part of, if they are at most"
            " ten, or a hundred for a part with digits. A query without a text, or of several"
            " terms, is refused; an index in a vector database has no words, and `degraded`"
            " contains lexical."
        ),
    ] = None
    read_words: Annotated[
        bool | None,
        Field(
            description="Whether dates and places in the words of a text become filters, which"
            " `read` of the answer lists; by default only in an index that follows folders."
        ),
    ] = None
    unread: Annotated[
        list[Annotated[str, StringConstraints(max_length=256)]],
        Field(
            default_factory=list[str],
            max_length=20,
            fail_fast=True,
            description="Words that `read_words` leaves words, as `words` in `read` has them.",
            examples=[["in Bern"]],
        ),
    ] = field(default_factory=list[str])
    sort: Annotated[
        str | None,
        Field(
            min_length=1,
            max_length=256,
            description="Metadata field that orders the hits of the page, smallest first; with a"
            " minus before it, as in -taken_at, largest first. The hits are found by relevance, and"
            " keep their `rank` and `score`; those without a value in the field come last. Numbers"
            " come before texts; of a list counts the value that comes first. If no item has a"
            " value there, the order is that of relevance, and `unknown_fields` names the field.",
            examples=["-taken_at"],
        ),
    ] = None

    stack: Annotated[
        bool,
        Field(
            description="Whether photos of one moment (a RAW and its JPEG, an edited copy, a burst)"
            " and copies are one hit, whose `stack` names all that pass the filter; the best one"
            " is shown. `k` and `offset` count these hits."
        ),
    ] = False
    facets: Annotated[
        list[Annotated[str, StringConstraints(min_length=1, max_length=256)]],
        Field(
            default_factory=list[str],
            max_length=MAX_FACETS,
            fail_fast=True,
            description="Metadata fields whose values are counted, in `facets` of the answer.",
            examples=[["camera", "place"]],
        ),
    ] = field(default_factory=list[str])

    @property
    def sort_field(self) -> str | None:
        """The field of `sort`, without its direction."""
        return None if self.sort is None else self.sort.removeprefix("-")

    def check(self) -> None:
        """Check the bounds, except those that apply to HTTP requests only.

        Raises:
            InputError: If an option is out of its bounds, or two exclude each other.
        """
        if self.sort is not None and not self.sort_field:
            raise InputError(f"sort: expected the name of a field, got {brief(self.sort)}")
        for bound in _BOUNDS:
            value = getattr(self, bound.name)
            if value is None or value in bound.words:
                continue
            if isinstance(value, str) or not bound.least <= value <= bound.most:
                raise InputError(f"{bound.name}: expected {bound.expected}, got {value}")


class AskedSearch(NamedTuple, Generic[Q]):
    """A search: its query, as it was asked or encoded, and how to answer it.

    Attributes:
        query: What is searched for.
        target: Collection to search.
        options: Options of the search.
        received_s: Arrival time, by `time.monotonic`, which all processes share; 0 for now.
    """

    query: Q
    target: Target
    options: SearchOptions = SearchOptions()
    received_s: float = 0.0


class SearchOptionFields(TypedDict, total=False):
    """The fields of `SearchOptions` as keyword arguments, which no type checker derives from it."""

    k: int
    offset: int
    candidates: int | Literal["exhaustive"]
    rerank: bool
    fusion: float
    explain: bool
    filter: dict[str, Any]
    timeout_ms: float
    min_probability: float
    lexical: float
    read_words: bool
    unread: list[str]
    sort: str
    stack: bool
    facets: list[str]


OPTION_NAMES = tuple(each.name for each in fields(SearchOptions))


class _Bound(NamedTuple):
    """Bounds of a bounded option.

    Attributes:
        name: Name of the option.
        least: Smallest allowed value.
        most: Largest allowed value.
        expected: The allowed values in words.
        words: Words that are allowed in place of a number.
    """

    name: str
    least: float
    most: float
    expected: str
    words: tuple[str, ...] = ()


def _bounds() -> list[_Bound]:
    found: list[_Bound] = []
    for name, hint in get_type_hints(SearchOptions, include_extras=True).items():
        least, most, expected = -math.inf, math.inf, ""
        choices = get_args(hint.__origin__)  # of a union
        words = tuple(chain(*(get_args(each) for each in choices if get_origin(each) is Literal)))
        limits: list[object] = []
        for of in (hint, *choices):
            limits += getattr(of, "__metadata__", ())
        for each in limits:
            match each:
                case Ge(ge=float() | int() as limit):
                    least, expected = limit, f"at least {limit}"
                case Gt(gt=float() | int() as limit):
                    least, expected = math.nextafter(limit, math.inf), f"more than {limit}"
                case Le(le=float() | int() as limit):
                    most, expected = limit, f"{least} to {limit}"
                case _:
                    pass
        if expected:
            expected = " or ".join([expected, *words])
            found.append(_Bound(name, least, most, expected, words))
    return found


_BOUNDS = _bounds()

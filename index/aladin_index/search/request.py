"""A query as it is asked at every door, with its options: what is searched for, and how.

The HTTP service, the command line, the tools of agents, the Python interface and the clients make
the same `SearchRequest`, and only this module says what a query is.
"""

from __future__ import annotations

import binascii
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field, replace
from os import PathLike
from typing import TYPE_CHECKING, Annotated, BinaryIO, NamedTuple

from annotated_types import Ge, Gt, Le
from pydantic import AfterValidator, BeforeValidator, Field, StringConstraints, WithJsonSchema

from aladin_index.search.options import OPTION_NAMES, SearchOptionFields, SearchOptions
from aladin_index.search.results import Box, Role
from aladin_network.errors import InputError, brief
from aladin_network.types import MAX_NAME_CHARS, Target

if TYPE_CHECKING:
    from PIL.Image import Image

    # Bytes of a file, its path, the open file, or for photos a decoded picture.
    PictureSource = bytes | str | PathLike[str] | BinaryIO
    Picture = PictureSource | Image
    Listed = Sequence
else:  # as a body of HTTP has them
    Picture = PictureSource = bytes
    Listed = list

# Terms of a query that are compared with every candidate, in both stages.
MAX_TERMS = 8
# Examples, of which only the embeddings are compared.
MAX_EXAMPLES = 64
MAX_WEIGHT = 100
# Longest id in a request: builds accept ids of any length, such as paths and URLs.
MAX_ASKED_ID_CHARS = MAX_NAME_CHARS

_TERM_QUERIES = ("text", "image", "id")
_QUERIES = (*_TERM_QUERIES, "regions")

REGIONS_DESCRIPTION = (
    "Regions that a detector found in a photo, for an index whose model reads regions: an npz file"
    " with `vectors` (regions x numbers), `boxes` (in fractions of the photo, or in pixels with"
    " `image_size`) and perhaps `labels` and `detector`."
)
BOX_DESCRIPTION = (
    "Part of the photo to search for: x0, y0, x1, y1 in fractions of its width and height."
)
ALL_DESCRIPTION = (
    f"What the hits have, all of it: terms of one query, at most {MAX_TERMS} with those of `not`."
)
NOT_DESCRIPTION = (
    "What the hits do not have: a hit is placed lower by how much more it has of it than is usual"
    " among the candidates."
)
LIKE_DESCRIPTION = (
    f"Items of the index that hits are like, at most {MAX_EXAMPLES}; no term of a query is among"
    " its hits. They move the words of texts in `all` towards their regions."
)

DATA_URL = re.compile(r"data:[\w.+/-]{0,100}(?:;[\w.+-]{1,50}=[\w.+-]{1,50})*;base64,", re.ASCII)
# From the alphabet of URLs.
_STANDARD = bytes.maketrans(b"-_", b"+/")
_SPACES = b" \t\n\r\f\v"


def decode_base64(text: str) -> bytes:
    """Decode a file in JSON: base64, or a data URL of it.

    The text may have white space (tools wrap base64 into lines), have the alphabet of URLs, and
    lack its padding; anything else is a ValueError.
    """
    data_url = DATA_URL.match(text)
    try:
        # In passes of C, without an object for each piece: the text may be as long as a body.
        content = text[data_url.end() if data_url else 0 :].encode("ascii")
        plain = content.translate(_STANDARD, _SPACES).rstrip(b"=")
        return binascii.a2b_base64(plain + b"=" * (-len(plain) % 4), strict_mode=True)
    except ValueError:
        raise ValueError("not base64, nor a data URL with base64") from None


def check_box(box: Sequence[float], name: str = "box") -> Box:
    """Return a box of a photo: x0, y0, x1, y1 in fractions of its width and height.

    Raises:
        InputError: If it is none, is not inside the photo, or has no area.
    """
    if len(box) != 4 or not all(0 <= edge <= 1 for edge in box):
        raise InputError(
            f"{name}: expected x0, y0, x1, y1 in fractions of the photo's width and height, 0 to 1,"
            f" got {list(box)}"
        )
    x0, y0, x1, y1 = map(float, box)
    if not (x0 < x1 and y0 < y1):
        raise InputError(f"{name}: expected x0 < x1 and y0 < y1, got {list(box)}")
    return x0, y0, x1, y1


def parse_box(text: str, name: str = "box") -> Box:
    """Read a box of an address or a command line: four numbers with commas between them."""
    try:
        edges = [float(edge) for edge in text.split(",")]
    except ValueError:
        raise InputError(f"{name}: expected x0,y0,x1,y1, got {brief(text)}") from None
    return check_box(edges, name)


def one_of(given: Mapping[str, object], otherwise: str = "") -> str:
    """Return the name of the only value that is given.

    Args:
        given: Values by name, None if missing.
        otherwise: What may be given in their place, for the error.

    Raises:
        InputError: If none or several are given.
    """
    names = [name for name, value in given.items() if value is not None]
    if len(names) == 1:
        return names[0]
    got = " and ".join(names) or "none"
    raise InputError(f"expected exactly one of {', '.join(given)}{otherwise}, got {got}")


def check_boxed(box: Sequence[float], query: str) -> None:
    """Check that a box is one, and belongs to the query of this name, which can be a photo."""
    if query == "text":
        raise InputError("box: expected a photo beside it, by image or id, got text")
    check_box(box)


# Validators and schemas for bodies of HTTP; what a program makes is checked as a whole alone.


def _uploaded(value: object) -> object:
    return decode_base64(value) if isinstance(value, str) else value


def _with_area(box: Sequence[float]) -> Sequence[float]:
    try:
        check_box(box)
    except InputError as error:
        raise ValueError(str(error).removeprefix("box: ")) from None
    return box


_UPLOAD = (
    BeforeValidator(_uploaded),
    WithJsonSchema({"type": "string", "contentEncoding": "base64"}),
)
# A file: base64 in JSON, or a file of a form.
Upload = Annotated[bytes, *_UPLOAD]
UploadedPicture = Annotated[Picture, *_UPLOAD]
UploadedFile = Annotated[PictureSource, *_UPLOAD]
ItemId = Annotated[str, StringConstraints(max_length=MAX_ASKED_ID_CHARS)]
QueryBox = Annotated[
    Listed[Annotated[float, Ge(0), Le(1)]],
    Field(min_length=4, max_length=4, fail_fast=True),
    AfterValidator(_with_area),
]


@dataclass(frozen=True)
class Asked:
    """One text, photo or item."""

    text: Annotated[str | None, Field(description="Words to search for.")] = None
    _: KW_ONLY
    image: Annotated[
        UploadedPicture | None,
        Field(description="A picture file; in JSON as base64 or a data URL."),
    ] = None
    id: Annotated[
        ItemId | None, Field(description="An item of the index; it is not among its own hits.")
    ] = None
    box: Annotated[
        QueryBox | None,
        Field(description=BOX_DESCRIPTION + " With image, regions, or the id of a photo."),
    ] = None


@dataclass(frozen=True, kw_only=True)
class SearchTerm(Asked):
    """A term of a query of several: exactly one of `text`, `image` and `id`.

    Attributes:
        text: Words.
        image: A picture: its bytes, the path of its file, or the open file; in this process also a
            decoded picture.
        id: Id of an item of the index.
        box: Part of the photo to search for: x0, y0, x1, y1 in fractions of its width and height.
        weight: Factor of the term's score in the sum of all terms, more than 0.
    """

    weight: Annotated[
        float,
        Gt(0),
        Le(MAX_WEIGHT),
        Field(description="Factor of the term's score in the sum of all terms."),
    ] = 1.0

    def check(self, source: str = "") -> None:
        """Check that it is one, and raise an InputError otherwise; `source` names it there."""
        where = f"{source}: " if source else ""
        given = {name: getattr(self, name) for name in _TERM_QUERIES}
        try:
            query = one_of(given)
            if self.box is not None:
                check_boxed(self.box, query)
            if not self.weight > 0:
                raise InputError(f"expected a weight of more than 0, got {self.weight}")
        except InputError as error:
            raise InputError(f"{where}{error}") from None


class AskedTerm(NamedTuple):
    """A term of a query of several; `source` names it in errors, as in ``all[0]``."""

    role: Role
    source: str
    asked: SearchTerm


@dataclass(frozen=True)
class SearchRequest(SearchOptions, Asked):
    """What is searched for, and how.

    It has exactly one of `text`, `image`, `id` and `regions`, or terms: `all`, `like` or both, and
    perhaps `not_`.

    Attributes:
        text: Words to search for.
        target: Collection to search, or None for the usual one, see `target_in`.
        image: A picture, as of `SearchTerm`.
        id: Id of an item of the index; it is not among its own hits.
        regions: An npz file of the regions that a detector found in a picture, given as a picture.
        box: Part of the picture or of the item's photo to search for.
        all: Terms that hits have; texts, or terms of any kind.
        not_: Terms that hits do not have, likewise.
        like: Ids of items that hits are like.
    """

    target: Target | None = None
    _: KW_ONLY
    regions: Annotated[UploadedFile | None, Field(description=REGIONS_DESCRIPTION)] = None
    # By factories, since a body of HTTP has its own type of these fields and their defaults.
    all: Listed[str | SearchTerm] | None = field(default_factory=list)
    not_: Listed[str | SearchTerm] | None = field(default_factory=list)
    # Validation ends at the first entry that is wrong or one too many: a body has room for 300,000.
    like: Annotated[
        Listed[ItemId] | None,
        Field(max_length=MAX_EXAMPLES, fail_fast=True, description=LIKE_DESCRIPTION),
    ] = None

    @property
    def has_terms(self) -> bool:
        """Whether it is a query of several terms."""
        return bool(self.all or self.not_ or self.like)

    @property
    def is_whole_photo(self) -> bool:
        """Whether it is a photo that is brought along, all of it."""
        is_photo = self.image is not None or self.regions is not None
        return is_photo and self.box is None and not self.has_terms

    def target_in(self, held: Sequence[Target]) -> Target:
        """Return the collection to search: the one asked for, or the usual one.

        Args:
            held: Collections of the index; if the usual one is not among them, the first is taken.
        """
        usual: Target = "texts" if self.is_whole_photo else "images"
        return self.target or (usual if usual in held else held[0])

    def options(self) -> SearchOptions:
        """Return how to search, without the query."""
        return SearchOptions(**{name: getattr(self, name) for name in OPTION_NAMES})

    def terms(self) -> Iterator[AskedTerm]:
        """Yield the terms of a query of several terms, each item of `like` once."""
        given: dict[Role, Sequence[str | SearchTerm] | None] = {"all": self.all, "not": self.not_}
        for role, terms in given.items():
            for place, each in enumerate(terms or ()):
                term = SearchTerm(text=each) if isinstance(each, str) else each
                yield AskedTerm(role, f"{role}[{place}]", term)
        for item_id in dict.fromkeys(self.like or ()):
            yield AskedTerm("like", "like", SearchTerm(id=item_id))

    def with_query_as_term(self) -> SearchRequest:
        """Make a text, photo or item beside terms the first of `all`.

        For doors where a query is written before its further terms.
        """
        if not self.has_terms:
            return self
        given = [name for name in _TERM_QUERIES if getattr(self, name) is not None]
        if self.box is not None and len({"image", "id"} & {*given}) != 1:
            got = " and ".join(given) or "none"
            raise InputError(f"box: expected one photo beside it, by image or id, got {got}")
        first = [
            SearchTerm(**{name: getattr(self, name)}, box=None if name == "text" else self.box)
            for name in given
        ]
        return replace(
            self, text=None, image=None, id=None, box=None, all=[*first, *(self.all or ())]
        )

    def check_query(self) -> None:
        """Check what is searched for; the options are checked by `check`.

        Raises:
            InputError: If it is not exactly one query, the terms are none, or a box has no photo.
        """
        if self.has_terms:
            self._check_terms()
            return
        given = {name: getattr(self, name) for name in _QUERIES}
        query = one_of(given, ", or the terms of a query")
        if self.box is not None:
            check_boxed(self.box, query)

    def _check_terms(self) -> None:
        for name in (*_QUERIES, "box"):
            if getattr(self, name) is not None:
                belongs = "" if name == "regions" else "; as a term it belongs into all"
                raise InputError(
                    f"expected a query or its terms, got {name} beside all, not or like{belongs}"
                )
        if not self.all and not self.like:
            raise InputError("not: expected a term in all or like beside it, got none")
        terms, examples = len(self.all or ()) + len(self.not_ or ()), len(self.like or ())
        if terms > MAX_TERMS:
            raise InputError(f"all, not: expected at most {MAX_TERMS} terms, got {terms}")
        if examples > MAX_EXAMPLES:
            raise InputError(f"like: expected at most {MAX_EXAMPLES} ids, got {examples}")
        for term in self.terms():
            term.asked.check(term.source)


class SearchFields(SearchOptionFields, total=False):
    """The fields of a `SearchRequest` beside text and target, as keyword arguments."""

    image: Picture
    id: str
    regions: PictureSource
    box: Sequence[float]
    all: Sequence[str | SearchTerm]
    not_: Sequence[str | SearchTerm]
    like: Sequence[str]

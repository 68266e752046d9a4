"""The query of ``aladin search``: one text, photo or item, or several parts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from aladin_network.errors import InputError
from aladin_network.types import Target
from aladin_service.commands.options import usual_target

if TYPE_CHECKING:
    from aladin_index.search.options import SearchOptions
    from aladin_index.search.results import Box
    from aladin_service.client import Search
    from aladin_service.search.job import PartsQuery, PlainQuery

AndOption = Annotated[
    list[str] | None,
    typer.Option("--and", metavar="TEXT", help="What hits have as well; repeatable."),
]
NotOption = Annotated[
    list[str] | None,
    typer.Option("--not", metavar="TEXT", help="What hits do not have; repeatable."),
]
LikeOption = Annotated[
    list[str] | None,
    typer.Option("--like", metavar="ID", help="An item that hits are like; repeatable."),
]
BoxOption = Annotated[
    str | None,
    typer.Option(
        "--box",
        metavar="X0,Y0,X1,Y1",
        help="Part of the photo of --image, --regions or --id to search for, in fractions of its "
        "width and height.",
    ),
]


def parse_box(given: str | None) -> Box | None:
    """Read a box from the command line.

    Raises:
        InputError: If it is none.
    """
    if given is None:
        return None
    try:
        edges = [float(edge) for edge in given.split(",")]
    except ValueError:
        raise InputError(f"--box: expected X0,Y0,X1,Y1, got {given!r}") from None
    from aladin_index.search.boxes import check_box

    return check_box(edges, "--box")


@dataclass(frozen=True)
class GivenQuery:
    """The query as the command line has it.

    Attributes:
        text: Words.
        image: File of a photo, or of the photo that regions belong to.
        regions: File of regions.
        item_id: Id of an item.
        also: Texts that hits have as well.
        without: Texts that hits do not have.
        like: Ids of items that hits are like.
        box: Part of the photo to search for, or None for all of it.
    """

    text: str | None
    image: Path | None
    regions: Path | None
    item_id: str | None
    also: Sequence[str]
    without: Sequence[str]
    like: Sequence[str]
    box: Box | None = None

    @property
    def is_photo(self) -> bool:
        """Whether a photo is given."""
        return self.image is not None or self.regions is not None

    @property
    def has_parts(self) -> bool:
        """Whether the query has several parts."""
        return bool(self.also or self.without or self.like)

    def check(self, *, is_drawn: bool) -> None:
        """Check that exactly one query is given, or parts that make one.

        Args:
            is_drawn: Whether the evidence is to be drawn.

        Raises:
            InputError: If they do not.
        """
        given = (self.text is not None) + self.is_photo + (self.item_id is not None)
        if self.box is not None and not (self.is_photo or self.item_id is not None):
            raise InputError("--box: expected a photo beside it, by --image, --regions or --id")
        if self.box is not None and self.is_photo and self.item_id is not None:
            raise InputError("--box: expected one photo beside it, got --image and --id")
        if not self.has_parts:
            if given != 1:
                raise InputError(f"expected exactly one of TEXT, a photo and --id, got {given}")
            return
        if self.regions is not None:
            raise InputError("--regions: regions are not searched with --and, --not or --like")
        if is_drawn:
            raise InputError("--out: the evidence of a query of several parts is not drawn")
        if not (given or self.also or self.like):
            raise InputError("--not: expected TEXT, --image, --id, --and or --like, too")

    def query(self) -> PlainQuery | PartsQuery:
        """Return the query for an index.

        Raises:
            OSError: If a file cannot be read.
        """
        from aladin_service.search.job import (
            ItemQuery,
            PartsQuery,
            PhotoQuery,
            QueryPart,
            RegionsQuery,
            TextQuery,
        )

        if self.regions is not None:
            photo = None if self.image is None else self.image.read_bytes()
            return RegionsQuery(self.regions.read_bytes(), photo, str(self.regions), self.box)
        wanted: list[TextQuery | PhotoQuery | ItemQuery] = []
        if self.text is not None:
            wanted.append(TextQuery(self.text))
        if self.image is not None:
            wanted.append(PhotoQuery(self.image.read_bytes(), str(self.image), self.box))
        if self.item_id is not None:
            wanted.append(ItemQuery(self.item_id, box=self.box))
        if not self.has_parts:
            return wanted[0]
        wanted += [TextQuery(each) for each in self.also]
        parts = [QueryPart(each, "all") for each in wanted]
        parts += [QueryPart(TextQuery(each), "not") for each in self.without]
        parts += [QueryPart(ItemQuery(each), "like") for each in dict.fromkeys(self.like)]
        return PartsQuery(tuple(parts))

    def search(self, target: Target | None, options: SearchOptions) -> Search:
        """Return the query for a service.

        Args:
            target: Collection to search, or None for the usual one.
            options: Options of the search.
        """
        from aladin_service.client import Search, SearchPart

        how = asdict(options)
        is_whole_photo = self.is_photo and self.box is None
        target = target or usual_target(is_whole_photo and not self.has_parts)
        if not self.has_parts:
            image = self.image if self.regions is None else None  # only the drawing needs it
            one = {"image": image, "id": self.item_id, "regions": self.regions, "box": self.box}
            return Search(self.text, target, **one, **how)
        wanted: list[SearchPart] = []
        if self.text is not None:
            wanted.append(SearchPart(text=self.text))
        if self.image is not None:
            wanted.append(SearchPart(image=self.image, box=self.box))
        if self.item_id is not None:
            wanted.append(SearchPart(id=self.item_id, box=self.box))
        return Search(
            target=target,
            all=[*wanted, *self.also],
            not_=self.without,
            like=self.like,
            **how,
        )

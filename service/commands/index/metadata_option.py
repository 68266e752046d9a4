"""The option for the size of items' metadata, of commands that take new items."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from service.sizes import parse_bytes

if TYPE_CHECKING:
    from index.items.metadata_limits import MetadataLimits

MaxMetadataOption = Annotated[
    int | None,
    typer.Option(
        "--max-metadata",
        metavar="SIZE",
        parser=parse_bytes,
        help="Maximum size of an item's metadata, written as JSON. The command refuses a larger "
        "one, and names the item. [default: 64KiB]",
    ),
]


def metadata_limits(max_bytes: int | None) -> MetadataLimits:
    """Return the limits of metadata.

    Args:
        max_bytes: value of the option.
    """
    from index.items.metadata_limits import DEFAULT_METADATA_LIMITS, MetadataLimits

    return DEFAULT_METADATA_LIMITS if max_bytes is None else MetadataLimits(max_bytes=max_bytes)

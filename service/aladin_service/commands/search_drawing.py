"""The drawing written by ``aladin search --explain --out FILE``."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from aladin_network.errors import InputError
from aladin_network.files import atomic_file, check_writable

if TYPE_CHECKING:
    from aladin_index.search.results import SearchAnswer

DrawingOption = Annotated[
    Path | None,
    typer.Option(
        "--out",
        metavar="FILE.png",
        dir_okay=False,
        help="With --explain: draw each hit's photo with its regions, and the text with its "
        "numbers; at most 20 hits, one below the other.",
    ),
]

# More drawings in one file would not be readable, and take a gigabyte to combine.
MAX_DRAWN = 20


def check_drawing(out: Path, hits: int, *, explain: bool) -> None:
    """Reject an impossible drawing before searching."""
    if not explain:
        raise InputError("--out: expected --explain too, for it is the evidence that is drawn")
    if out.suffix.lower() != ".png":
        raise InputError(f"--out: expected a name that ends in .png, got {out.name}")
    if hits > MAX_DRAWN:
        raise InputError(f"--out: expected -k to be at most {MAX_DRAWN}, got {hits}")
    check_writable("--out", out)


def write_drawing(out: Path, drawings: Iterable[bytes]) -> None:
    """Write drawings below one another; the file is complete or does not exist."""
    from aladin_service.evidence.png import stack_pngs

    drawing = stack_pngs(list(drawings))
    try:
        with atomic_file(out) as partial:
            partial.write_bytes(drawing)
    except OSError as error:
        # The error's own message would name the temporary file, which the user does not know.
        raise InputError(f"--out: {out} cannot be written ({error.strerror})") from error


def drawn_ids(answer: SearchAnswer) -> list[str]:
    """Return the hits to draw; an InputError says why there is nothing to draw."""
    if not answer.hits:
        raise InputError("--out: nothing was found, so there is nothing to draw")
    if "explain" in answer.degraded:
        raise InputError(
            "--out: the alignment of this index's model was not trained, so there is "
            "no evidence to draw"
        )
    if any(hit.evidence is None and hit.region_evidence is None for hit in answer.hits):
        raise InputError(
            "--out: there is no evidence to draw; it is between a text and a photo (--target), or"
            " a part of a photo (--box) and a photo, and needs an index with tokens and time for"
            " the second stage"
        )
    return [hit.id for hit in answer.hits]

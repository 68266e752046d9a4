"""``aladin search``."""

from __future__ import annotations

import json
import sys
from contextlib import closing
from dataclasses import replace
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, cast

import typer

from aladin_network.errors import AladinError, InputError
from aladin_network.files import atomic_file, check_writable
from aladin_network.types import DeviceName, Target
from aladin_service.commands.flags import Flags, with_flags
from aladin_service.commands.options import (
    INDEX_HELP,
    DetectorOption,
    SearchDeviceOption,
    UrlOption,
    checked_index,
)

if TYPE_CHECKING:
    from aladin_index.search.request import SearchRequest
    from aladin_index.search.results import SearchAnswer
    from aladin_service.door import Index

# httpx does without this module where it cannot be imported.
_HTTPX_COMMAND = "httpx._main"

IndexArgument = Annotated[
    str | None, typer.Argument(metavar="INDEX", help=f"{INDEX_HELP} Omitted with --url.")
]
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
JsonOption = Annotated[
    bool, typer.Option("--json", help="Print the JSON that the HTTP service answers.")
]
PathsOption = Annotated[
    bool, typer.Option("--paths", help="Print the paths of the photos alone, one a line.")
]
NulOption = Annotated[
    bool, typer.Option("-0", help="With --paths: end each with NUL, as xargs -0 reads them.")
]


def _request_flags() -> Flags:
    """Return the options of a request, with those that the command line writes in its own way."""
    from aladin_index.search.options import candidates_from
    from aladin_index.search.request import SearchRequest, parse_box

    def file(flag: str, metavar: str, help: str) -> Any:
        return Annotated[
            Path | None,
            typer.Option(flag, metavar=metavar, exists=True, dir_okay=False, help=help),
        ]

    def several(flag: str, metavar: str, help: str) -> Any:
        return Annotated[
            list[str] | None, typer.Option(flag, metavar=metavar, help=f"{help}; repeatable.")
        ]

    def parsed(flag: str, metavar: str, help: str, parser: Any) -> Any:
        return Annotated[str | None, typer.Option(flag, metavar=metavar, parser=parser, help=help)]

    target = "[default: texts for a whole photo, otherwise images, or what INDEX has]"
    written = {
        "text": Annotated[
            list[str] | None, typer.Argument(metavar="TEXT...", help="Words to search for.")
        ],
        "image": file("--image", "FILE", "A photo."),
        "regions": file(
            "--regions",
            "FILE.npz",
            "Ready-made regions of a photo, for an index whose model reads regions; with --image"
            " the photo that --out draws them on.",
        ),
        "id": Annotated[
            str | None,
            typer.Option(
                "--id",
                metavar="ID",
                help="An item of the index; it is not among its own hits.",
            ),
        ],
        "box": parsed(
            "--box",
            "X0,Y0,X1,Y1",
            "Part of the photo of --image, --regions or --id to search for, in fractions of its"
            " width and height.",
            partial(parse_box, name="--box"),
        ),
        "all": several("--and", "TEXT", "What hits have as well"),
        "not_": several("--not", "TEXT", "What hits do not have"),
        "like": several("--like", "ID", "An item that hits are like"),
        "target": Annotated[
            Target | None, typer.Option("--target", help=f"What to find. {target}")
        ],
        "k": Annotated[
            int | None,
            typer.Option(
                "-k", min=1, max=1000, help="Number of hits. [default: 10; with --out, 1]"
            ),
        ],
        "candidates": parsed(
            "--candidates", "N|exhaustive", "Size of the first stage's result.", candidates_from
        ),
        "filter": parsed(
            "--filter",
            "JSON",
            'Metadata, e.g. {"or": [{"city": "Pisa"}, {"year": {"gte": 2020}}]}.',
            _filter,
        ),
        "read_words": Annotated[
            bool | None,
            typer.Option(
                "--read-words/--no-read-words",
                help="Make dates and places in the words of TEXT filters. [default: in a library]",
                show_default=False,
            ),
        ],
        "unread": several("--unread", "WORDS", "Words that --read-words leaves words"),
        "facets": several("--facet", "FIELD", "A metadata field whose values are counted"),
        "offset": None,  # the command line has no pages
    }
    return Flags(
        SearchRequest,
        written,
        {"k": None, "filter": "{}", "all": None, "not_": None, "unread": None, "facets": None},
    )


@with_flags(asked=_request_flags)
def search(
    index: IndexArgument = None,
    *,
    asked: SearchRequest,
    url: UrlOption = None,
    out: DrawingOption = None,
    detector: DetectorOption = None,
    device: SearchDeviceOption = "cpu",
    as_json: JsonOption = False,
    paths: PathsOption = False,
    nul: NulOption = False,
) -> None:
    """Search an index or a service with words, a photo or an item.

    In: INDEX or --url, and one of TEXT, a photo (--image, --regions or both) and --id. With --and,
    --not and --like it is one term of a query, and may be left out beside --like. The words of TEXT
    need no quotes; those of --and and --not do.

    Out: on stdout the hits, best first: rank, score, both stages' ranks and scores, uri and text;
    with --explain each word's best region, its box in fractions of the photo's size (x0 y0 x1 y1),
    and the cosine there; probabilities if a calibration may judge the query. --out draws evidence.
    With --paths their paths alone.
    """
    index, asked = _place_and_words(index, asked, url)
    photo = asked.image
    if asked.regions is not None:
        asked = replace(asked, image=None)  # which only the drawing needs
    asked = replace(asked, k=_count(asked, out)).with_query_as_term()
    asked.check_query()
    if out is not None and asked.has_terms:
        raise InputError("--out: the evidence of a query of several terms is not drawn")
    _check_paths(paths=paths, nul=nul, as_json=as_json, url=url)
    if index is None:
        _check_left_to_service(device, detector)
        opened = _service(url or "")
    else:
        opened = _opened(checked_index(Path(index)), asked, device, detector)
    with closing(opened) as door:
        answer = door.search(asked)
        if out is not None:
            ids = _drawn_ids(answer)
            _write_drawing(out, [door.draw(asked, each, photo) for each in ids])
        if paths:
            _print_paths(door, answer, "\0" if nul else "\n")
        else:
            _print_answer(door, asked, answer, as_json=as_json)


def _place_and_words(
    index: str | None, asked: SearchRequest, url: str | None
) -> tuple[str | None, SearchRequest]:
    """Return INDEX, or None with --url, and the request with its words joined."""
    words = list(asked.text or ())
    if url is None and index is None:
        raise typer.BadParameter("expected exactly one of INDEX and --url, got neither")
    if url is not None and index is not None:  # it is the first of the words
        if words and _is_index(index):
            raise typer.BadParameter(
                f"expected exactly one of INDEX and --url, got both; if {index!r} is one of the "
                "words, put all of them in quotes"
            )
        index, words = None, [index, *words]
    return index, replace(
        asked,
        text=" ".join(words) if words else None,
        unread=[*(asked.unread or ())],
        facets=[*(asked.facets or ())],
    )


def _is_index(word: str) -> bool:
    try:
        checked_index(Path(word))
    except AladinError:
        return False
    return True


def _check_paths(*, paths: bool, nul: bool, as_json: bool, url: str | None) -> None:
    if nul and not paths:
        raise InputError("-0: expected --paths with it")
    if paths and as_json:
        raise InputError("--paths: expected no --json with it")
    if paths and url is not None:
        raise InputError("--paths: expected INDEX, got --url; a service tells no paths")


def _print_answer(
    door: Index, asked: SearchRequest, answer: SearchAnswer, *, as_json: bool
) -> None:
    from aladin_index.search.results import SEARCH_ANSWER
    from aladin_service.reports.tables import answer_lines

    if as_json:
        typer.echo(SEARCH_ANSWER.dump_json(answer, indent=2).decode())
        return
    known = door.fields(asked.target_in(door.targets)) if answer.unknown_fields else []
    typer.echo("\n".join(answer_lines(answer, known, filtered=bool(asked.filter))))


def _print_paths(door: Index, answer: SearchAnswer, end: str) -> None:
    """Print the paths of the hits' files; what has none of its own is named on stderr."""
    for hit in answer.hits:
        path = door.photo_path(hit.id)
        if path is None:
            typer.echo(f"{hit.id}: has no file of its own", err=True)
        else:
            typer.echo(f"{path}{end}", nl=False)


def _count(asked: SearchRequest, out: Path | None) -> int:
    """Return the number of hits, of which a drawing shows the first unless told otherwise."""
    given = cast(int | None, asked.k)
    if out is None:
        return given or 10
    hits = given or 1
    if not asked.explain:
        raise InputError("--out: expected --explain too, for it is the evidence that is drawn")
    if out.suffix.lower() != ".png":
        raise InputError(f"--out: expected a name that ends in .png, got {out.name}")
    if hits > MAX_DRAWN:
        raise InputError(f"--out: expected -k to be at most {MAX_DRAWN}, got {hits}")
    check_writable("--out", out)
    return hits


def _write_drawing(out: Path, drawings: list[bytes]) -> None:
    """Write drawings below one another; the file is complete or does not exist."""
    from aladin_service.evidence.png import stack_pngs

    drawing = stack_pngs(drawings)
    try:
        with atomic_file(out) as partial_file:
            partial_file.write_bytes(drawing)
    except OSError as error:
        # The error's own message would name the temporary file, which the user does not know.
        raise InputError(f"--out: {out} cannot be written ({error.strerror})") from error


def _drawn_ids(answer: SearchAnswer) -> list[str]:
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


def _check_left_to_service(device: DeviceName, detector: str | None) -> None:
    """Raise an error if an option is given that a service decides itself."""
    if device != "cpu":
        raise typer.BadParameter("--device: a service has its own")
    if detector is not None:
        raise typer.BadParameter("--detector: a service has its own")


def _opened(index: Path, asked: SearchRequest, device: DeviceName, detector: str | None) -> Index:
    """Open an index in this process, and warn if its hits are in no order."""
    from aladin_network.heads.trained import UNALIGNED
    from aladin_service.door import Local

    has_photo = asked.image is not None
    opened = Local(index, device, detector, reads_photos=has_photo)
    if opened.untrained is not None:
        typer.echo(f"warning: {opened.untrained}", err=True)
    elif not opened.searcher.index.checkpoint.alignment_trained:
        typer.echo(UNALIGNED, err=True)
    return opened


def _service(url: str) -> Index:
    _import_client()
    from aladin_service.client import AladinClient
    from aladin_service.door import Remote

    return Remote(AladinClient(url))


def _import_client() -> None:
    """Import the client, but not httpx's own command line: its packages take as long again."""
    modules: dict[str, Any] = cast(Any, sys.modules)
    is_barred = modules.setdefault(_HTTPX_COMMAND, None) is None
    import_module("aladin_service.client")
    if is_barred:
        del modules[_HTTPX_COMMAND]


def _filter(text: str) -> dict[str, Any]:
    try:
        value: object = json.loads(text)
    except ValueError as error:
        raise InputError(f"--filter: not JSON ({error})") from None
    if not isinstance(value, dict):
        raise InputError(f"--filter: expected a JSON object, got {text}")
    return cast(dict[str, Any], value)

"""``aladin search``."""

from __future__ import annotations

import json
import sys
import time
from contextlib import closing, suppress
from dataclasses import replace
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, cast

import typer

from aladin_network.errors import InputError
from aladin_network.types import DeviceName, FirstStageName, Target
from aladin_service.commands.options import (
    DetectorOption,
    FirstStageOption,
    SearchDeviceOption,
    checked_index,
    detector_for,
)
from aladin_service.commands.search_drawing import (
    DrawingOption,
    ExplainOption,
    check_drawing,
    draw_here,
    draw_there,
    write_drawing,
)

if TYPE_CHECKING:
    from aladin_index.devices.search_device import SearchDevice
    from aladin_index.search.request import SearchRequest
    from aladin_index.search.results import SearchAnswer


# httpx does without this module where it cannot be imported.
_HTTPX_COMMAND = "httpx._main"

IndexArgument = Annotated[
    str | None, typer.Argument(metavar="INDEX", help="Index folder; omitted with --url.")
]
TextArgument = Annotated[str | None, typer.Argument(metavar="TEXT", help="Words to search for.")]
UrlOption = Annotated[
    str | None,
    typer.Option(
        "--url",
        metavar="URL",
        help="URL of a running service, instead of INDEX; ALADIN_API_KEY is its API key.",
    ),
]
ImageOption = Annotated[
    Path | None,
    typer.Option("--image", metavar="FILE", exists=True, dir_okay=False, help="A photo."),
]
RegionsOption = Annotated[
    Path | None,
    typer.Option(
        "--regions",
        metavar="FILE.npz",
        exists=True,
        dir_okay=False,
        help="Ready-made regions of a photo, for an index whose model reads regions; with "
        "--image the photo that --out draws them on.",
    ),
]
ItemIdOption = Annotated[
    str | None,
    typer.Option("--id", metavar="ID", help="An item of the index; it is not among its own hits."),
]
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
TargetOption = Annotated[
    Target | None,
    typer.Option(
        "--target",
        help="What to find. [default: texts for a whole photo, otherwise images, or what INDEX "
        "has]",
    ),
]
CountOption = Annotated[
    int | None,
    typer.Option("-k", min=1, max=1000, help="Number of hits. [default: 10; with --out, 1]"),
]
CandidatesOption = Annotated[
    str | None,
    typer.Option("--candidates", metavar="N|all", help="Size of the first stage's result."),
]
RerankOption = Annotated[
    bool, typer.Option("--rerank/--no-rerank", help="Order by the second stage.")
]
FusionOption = Annotated[
    float | None,
    typer.Option(
        "--fusion", min=0, max=1, help="Weight of the alignment score; 1 is the papers' rule."
    ),
]
MinProbabilityOption = Annotated[
    float | None,
    typer.Option(
        "--min-probability",
        min=0,
        max=1,
        help="Drop hits that are less likely to belong to the query; needs a calibrated "
        "index. If its calibration does not apply to the query, no hit is dropped, and the "
        "last line reports it.",
    ),
]
_LEXICAL_HELP = "Weight of rare words of TEXT in the items' own texts, file names and metadata."
LexicalOption = Annotated[float | None, typer.Option("--lexical", min=0, max=1, help=_LEXICAL_HELP)]
SortOption = Annotated[
    str | None,
    typer.Option(
        "--sort",
        metavar="FIELD",
        help="Order the hits by a metadata field, such as taken_at, smallest first; -taken_at: "
        "largest first. Hits without the field come last.",
    ),
]
FilterOption = Annotated[
    str,
    typer.Option(
        "--filter",
        metavar="JSON",
        help='Metadata, e.g. {"or": [{"city": "Pisa"}, {"year": {"gte": 2020}}]}.',
    ),
]
TimeoutOption = Annotated[
    float | None,
    typer.Option(
        "--timeout-ms",
        min=1,
        help="Time limit; skips the second stage if it would take longer, and reports that.",
    ),
]
JsonOption = Annotated[
    bool, typer.Option("--json", help="Print the JSON that the HTTP service answers.")
]


def search(
    index: IndexArgument = None,
    text: TextArgument = None,
    url: UrlOption = None,
    image: ImageOption = None,
    regions: RegionsOption = None,
    item_id: ItemIdOption = None,
    box: BoxOption = None,
    also: AndOption = None,
    without: NotOption = None,
    like: LikeOption = None,
    target: TargetOption = None,
    k: CountOption = None,
    candidates: CandidatesOption = None,
    rerank: RerankOption = True,
    fusion: FusionOption = None,
    min_probability: MinProbabilityOption = None,
    lexical: LexicalOption = None,
    filter_json: FilterOption = "{}",
    sort: SortOption = None,
    explain: ExplainOption = False,
    out: DrawingOption = None,
    timeout_ms: TimeoutOption = None,
    detector: DetectorOption = None,
    device: SearchDeviceOption = "cpu",
    first_stage: FirstStageOption = "faiss",
    as_json: JsonOption = False,
) -> None:
    """Search an index or a service with words, a photo or an item.

    In: INDEX or --url, and one of TEXT, a photo (--image, --regions or both) and --id. With --and,
    --not and --like it is one part of a query, and may be left out beside --like.

    Out: on stdout the hits, best first: rank, score, both stages' ranks and scores, uri and text;
    with --explain each word's best region, its box in fractions of the photo's size (x0 y0 x1 y1),
    and the cosine there; probabilities if a calibration may judge the query. --out draws evidence.
    """
    if url is not None:
        index, text = None, _only_word(index, text)
    elif index is None:
        raise typer.BadParameter("expected exactly one of INDEX and --url, got neither")
    from aladin_index.search.options import candidates_from
    from aladin_index.search.request import SearchRequest, parse_box

    filters = _filter(filter_json)
    request = SearchRequest(
        text,
        target,
        image=image if regions is None else None,  # beside regions only the drawing needs it
        regions=regions,
        id=item_id,
        box=None if box is None else parse_box(box, "--box"),
        all=also,
        not_=without,
        like=like,
        k=_count(k, out, explain=explain),
        candidates=candidates_from(candidates),
        rerank=rerank,
        fusion=fusion,
        explain=explain,
        filter=filters,
        timeout_ms=timeout_ms,
        min_probability=min_probability,
        lexical=lexical,
        sort=sort,
    ).with_query_as_part()
    request.check_query()
    if out is not None and request.has_parts:
        raise InputError("--out: the evidence of a query of several parts is not drawn")
    folder = None if index is None else checked_index(Path(index))
    from aladin_index.search.results import SEARCH_ANSWER
    from aladin_service.reports.tables import answer_lines

    if url is not None:
        _check_left_to_service(device, first_stage, detector)
        _import_client()
        answer, known = _ask_service(url, request, image, out)
    else:
        assert folder is not None  # or there is a URL
        from aladin_index.devices.search_device import SearchDevice

        place = SearchDevice.choose(device, first_stage)
        answer, known = _search_here(folder, request, image, place, detector, out)
    if as_json:
        typer.echo(SEARCH_ANSWER.dump_json(answer, indent=2).decode())
    else:
        typer.echo("\n".join(answer_lines(answer, known, filtered=bool(filters))))


def _count(k: int | None, out: Path | None, *, explain: bool) -> int:
    """Return the number of hits, of which a drawing shows the first unless told otherwise."""
    if out is None:
        return k or 10
    check_drawing(out, k or 1, explain=explain)
    return k or 1


def _check_left_to_service(
    device: DeviceName, first_stage: FirstStageName, detector: str | None
) -> None:
    """Raise an error if an option is given that a service decides itself."""
    if (device, first_stage) != ("cpu", "faiss"):
        raise typer.BadParameter("--device and --first-stage: a service has its own")
    if detector is not None:
        raise typer.BadParameter("--detector: a service has its own")


def _only_word(first: str | None, second: str | None) -> str | None:
    """Return the search text of a command line without INDEX, which is its first argument."""
    if second is not None:
        raise typer.BadParameter("expected exactly one of INDEX and --url, got both")
    return first


def _search_here(
    index: Path,
    request: SearchRequest,
    image: Path | None,
    place: SearchDevice,
    detector: str | None,
    out: Path | None,
) -> tuple[SearchAnswer, list[str]]:
    """Search an index; also return its fields if the filter names one that no item has."""
    from aladin_index.open import open_backend
    from aladin_index.search.listing import NotListableError, list_fields
    from aladin_index.search.query import EncodedParts
    from aladin_index.search.searcher import TwoStageSearcher
    from aladin_network.heads.trained import UNALIGNED, untrained_reason
    from aladin_service.door import query_of
    from aladin_service.search.encoder import QueryEncoder
    from aladin_service.search.job import PartsQuery, RegionsQuery
    from aladin_service.search.parts import encode_any
    from aladin_service.settings import QueryLimits, engine_options

    query = query_of(request)
    if isinstance(query, RegionsQuery) and image is not None:
        query = replace(query, picture=image.read_bytes())
    with (
        closing(place),
        closing(open_backend(index, device=place, engine=engine_options(index))) as opened,
    ):
        finder = None
        if request.image is not None:
            finder = detector_for(opened.checkpoint.model.image.encoder, detector, place.device)
        searcher = TwoStageSearcher(opened)
        provenance = opened.checkpoint.provenance
        untrained = untrained_reason(provenance.recipe, provenance.stage)
        if untrained is not None:
            typer.echo(f"warning: {untrained}", err=True)
        elif not opened.checkpoint.alignment_trained and request.fusion is None:
            typer.echo(UNALIGNED, err=True)
        with closing(QueryEncoder(QueryLimits(), detector=finder)) as encoder:
            received_s = time.monotonic()
            encoded = encode_any(encoder, searcher, query)
        found = request.target_in(opened.manifest.targets)
        answer = searcher.search(encoded, found, request.options(), received_s)
        if not (out is None or isinstance(query, PartsQuery) or isinstance(encoded, EncodedParts)):
            write_drawing(out, draw_here(searcher, query, encoded, answer))
        known: list[str] = []
        with suppress(NotListableError):
            known = [*list_fields(opened.collection(found))] if answer.unknown_fields else []
        return answer, known


def _ask_service(
    url: str, request: SearchRequest, image: Path | None, out: Path | None
) -> tuple[SearchAnswer, list[str]]:
    """Ask a service as `_search_here` does."""
    from aladin_service.client import AladinClient
    from aladin_service.client_errors import RefusedInputError

    target = request.target_in(("images", "texts"))
    with AladinClient(url) as client:
        answer = client.search(replace(request, target=target))
        if out is not None:
            write_drawing(out, draw_there(client, request, image, answer))
        known: list[str] = []
        with suppress(RefusedInputError):  # an index in a vector database does not list them
            if answer.unknown_fields:
                fields = client.index_fields()
                listed = fields.images if target == "images" else fields.texts
                known = list(dict.fromkeys(field.name for field in listed or ()))
        return answer, known


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

"""``aladin search``."""

from __future__ import annotations

import json
from contextlib import closing
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any, cast

import typer

from aladin.errors import InputError
from service.commands.device_options import (
    Device,
    FirstStage,
    FirstStageOption,
    SearchDeviceOption,
)
from service.queries import ItemQuery, PhotoQuery, Query, SearchOptions, TextQuery


class TargetName(StrEnum):
    """What to search for."""

    images = "images"
    texts = "texts"


def search(
    index: Annotated[Path, typer.Argument(metavar="INDEX", help="Folder of an index.")],
    text: Annotated[str | None, typer.Argument(metavar="TEXT", help="Words to search for.")] = None,
    image: Annotated[
        Path | None,
        typer.Option("--image", metavar="FILE", exists=True, dir_okay=False, help="A photo."),
    ] = None,
    item_id: Annotated[
        str | None, typer.Option("--id", metavar="ID", help="An item of the index.")
    ] = None,
    target: Annotated[
        TargetName | None,
        typer.Option("--target", help="What to find; else texts for a photo, images for the rest."),
    ] = None,
    k: Annotated[int, typer.Option("-k", min=1, max=1000, help="Hits wanted.")] = 10,
    candidates: Annotated[
        int | None,
        typer.Option("--candidates", min=1, help="Size of the first stage's result."),
    ] = None,
    rerank: Annotated[
        bool, typer.Option("--rerank/--no-rerank", help="Order by the second stage.")
    ] = True,
    fusion: Annotated[
        float | None,
        typer.Option(
            "--fusion", min=0, max=1, help="Weight of the alignment score; 1 is the papers' rule."
        ),
    ] = None,
    filter_json: Annotated[
        str,
        typer.Option(
            "--filter",
            metavar="JSON",
            help='Metadata, e.g. {"or": [{"city": "Pisa"}, {"year": {"gte": 2020}}]}.',
        ),
    ] = "{}",
    explain: Annotated[
        bool, typer.Option("--explain", help="Show which word matched which region.")
    ] = False,
    device: SearchDeviceOption = Device.cpu,
    first_stage: FirstStageOption = FirstStage.faiss,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print the JSON that the HTTP service answers.")
    ] = False,
) -> None:
    """Search an index with words, a photo or one of its items.

    In: INDEX, and one of TEXT, --image and --id. Out: on stdout the hits, best first: rank, score,
    both stages' ranks and scores, uri and text; with --explain each word's best region, its box
    in fractions of the photo's size (x0 y0 x1 y1), and the cosine there.
    """
    from index.devices.search_device import SearchDevice
    from index.reader import open_index
    from index.searcher import TwoStageSearcher
    from service.answer_text import answer_lines
    from service.engine import SearchEngine
    from service.query_limits import QueryLimits

    query = _query(text, image, item_id)
    options = SearchOptions(
        k=k,
        candidates=candidates,
        rerank=rerank,
        fusion=fusion,
        explain=explain,
        filter=_filter(filter_json),
    )
    found = target or (TargetName.images if image is None else TargetName.texts)
    with (
        closing(SearchDevice.choose(device.value, first_stage.value)) as place,
        open_index(index, device=place) as opened,
    ):
        engine = SearchEngine(TwoStageSearcher(opened), QueryLimits())
        answer = engine.search(query, found.value, options)
    if as_json:
        typer.echo(answer.model_dump_json(indent=2))
    else:
        for line in answer_lines(answer):
            typer.echo(line)


def _query(text: str | None, image: Path | None, item_id: str | None) -> Query:
    given: list[Query] = []
    if text is not None:
        given.append(TextQuery(text))
    if image is not None:
        given.append(PhotoQuery(image.read_bytes(), str(image)))
    if item_id is not None:
        given.append(ItemQuery(item_id))
    if len(given) != 1:
        raise InputError(f"expected exactly one of TEXT, --image and --id, got {len(given)}")
    return given[0]


def _filter(text: str) -> dict[str, Any]:
    try:
        value: object = json.loads(text)
    except ValueError as error:
        raise InputError(f"--filter: not JSON ({error})") from None
    if not isinstance(value, dict):
        raise InputError(f"--filter: expected a JSON object, got {text}")
    return cast(dict[str, Any], value)

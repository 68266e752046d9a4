"""``aladin index push``."""

from __future__ import annotations

from contextlib import closing
from dataclasses import replace
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from aladin_service.commands.options import IndexArgument
from aladin_service.commands.progress import stderr_progress

if TYPE_CHECKING:
    from aladin_index.engines.push import PushReport
    from aladin_index.format.engine_location import EngineLocation


class Engines(StrEnum):
    """Engines that can keep an index."""

    MILVUS = "milvus"
    QDRANT = "qdrant"
    QDRANT_EDGE = "qdrant-edge"


def push(
    index: IndexArgument,
    out: Annotated[
        Path,
        typer.Option(
            "--out",
            metavar="FOLDER",
            help="Folder that stands for the index in the engine; a new one, or one of an "
            "earlier push, whose options then hold where none are given.",
        ),
    ],
    engine: Annotated[
        Engines | None, typer.Option("--engine", help="Which engine takes the index.")
    ] = None,
    url: Annotated[
        str | None,
        typer.Option(
            "--url",
            help="Of the engine: http://host:port or https://host:port; file:///folder for "
            "Qdrant in each process that searches. With --engine qdrant, such a folder can run "
            "code when it is opened: what searches it later needs ALADIN_ENGINE_URL, the same "
            "address, in its environment.",
        ),
    ] = None,
    name: Annotated[str | None, typer.Option("--name", help="Of the index in the engine.")] = None,
    shards: Annotated[
        int | None, typer.Option("--shards", min=1, help="Of each side of the new generation.")
    ] = None,
    replicas: Annotated[
        int | None, typer.Option("--replicas", min=1, help="Of each shard, in the engine.")
    ] = None,
    engine_index: Annotated[
        str | None,
        typer.Option(
            "--engine-index",
            metavar="KIND",
            help="The first stage that the engine builds, such as hnsw, flat or ivf_flat.",
        ),
    ] = None,
    index_params: Annotated[
        list[str] | None,
        typer.Option("--index-param", metavar="KEY=VALUE", help="Of building it; repeatable."),
    ] = None,
    search_params: Annotated[
        list[str] | None,
        typer.Option("--search-param", metavar="KEY=VALUE", help="Of searching it; repeatable."),
    ] = None,
    consistency: Annotated[
        str | None,
        typer.Option("--consistency", metavar="LEVEL", help="Of reads, in the engine's own words."),
    ] = None,
    ann_recall: Annotated[
        float | None,
        typer.Option(
            "--ann-recall",
            help="Share of the exact nearest items that the engine has to find: searches look as "
            "far as is needed for it, unless --search-param says how far. Without: what INDEX was "
            "built for.",
        ),
    ] = None,
    batch_size: Annotated[
        int, typer.Option("--batch-size", min=1, help="Items that are sent together.")
    ] = 256,
    keep: Annotated[
        int,
        typer.Option(
            "--keep",
            min=1,
            help="Generations that stay in the engine and its memory, the new one included.",
        ),
    ] = 2,
    discard_changes: Annotated[
        bool,
        typer.Option(
            "--discard-changes",
            help="Go on although items were added to what is live in the engine, or removed from "
            "it: the new generation does not have these changes.",
        ),
    ] = False,
    unless_live: Annotated[
        bool,
        typer.Option(
            "--unless-live",
            help="Do nothing where what is live in the engine was pushed from INDEX as it is now: "
            "for a job that is run at every start.",
        ),
    ] = False,
) -> None:
    """Put an index into an engine, from which any number of machines search it.

    In: INDEX, an index of files, with all that was added to it and removed from it; the engine,
    which has to run. Out: a new generation in the engine, live once all of it is in, counted and
    searchable, and taken up by services that run; the folder --out, which says where the index is
    and has its model, and which every command takes in the place of INDEX that needs no files of
    an index: serve, search, evaluate, index add, delete and info. On stdout, what was pushed, and
    how far searches look and how much of the exact nearest items that finds.

    A push that was cut goes on where it was when the same command is run again; until it is done
    the engine answers with what was live before. Tokens for engines come from ALADIN_ENGINE_TOKEN
    and are written nowhere; they are only sent to an address that --url or ALADIN_ENGINE_URL names.
    One push at a time to a name.
    """
    from aladin_index.engines.connect import connect
    from aladin_index.engines.push import PushSettings, push_index
    from aladin_index.format.engine_location import location_of
    from aladin_service.settings import read_settings

    asked: dict[str, Any] = {
        "url": url,
        "name": name,
        "shards": shards,
        "replicas": replicas,
        "index": engine_index,
        "index_params": _parameters("--index-param", index_params),
        "search_params": _parameters("--search-param", search_params),
        "consistency": consistency,
    }
    given = {key: value for key, value in asked.items() if value is not None}
    location = _location(location_of(out), engine, given)
    settings = PushSettings(
        batch_size=batch_size,
        keep=keep,
        ann_recall=ann_recall,
        discard_changes=discard_changes,
        unless_live=unless_live,
    )
    options = read_settings().engine_options
    if options.url is None:
        options = replace(options, url=url)  # whoever gives --url trusts it
    with closing(connect(location, options)) as client, stderr_progress() as progress:
        report = push_index(index, out, location, client, settings, progress)
    _print_report(out, location, report)
    _print_environment(location, has_token=options.token is not None)


def _location(
    known: EngineLocation | None, engine: Engines | None, given: dict[str, Any]
) -> EngineLocation:
    """Join what an earlier push has written and what is given now."""
    from aladin_index.format.engine_location import EngineLocation
    from aladin_network.errors import ConfigError

    if known is not None and engine in (None, known.engine):
        return replace(known, **given)
    missing = [f"--{key}" for key in ("url", "name") if key not in given]
    if engine is None:
        missing.insert(0, "--engine")
    if engine is None or missing:
        raise ConfigError(f"a first push needs --engine, --url and --name: no {', '.join(missing)}")
    return EngineLocation(engine=engine.value, **given)


def _parameters(option: str, written: list[str] | None) -> dict[str, int | float | str] | None:
    """Read KEY=VALUE; a value that looks like a number is one."""
    from aladin_network.errors import ConfigError

    if written is None:
        return None
    parameters: dict[str, int | float | str] = {}
    for each in written:
        key, equals, value = each.partition("=")
        if not key or not equals or not value:
            raise ConfigError(f"{option}: expected KEY=VALUE, got {each!r}")
        parameters[key] = _number(value)
    return parameters


def _number(value: str) -> int | float | str:
    for kind in (int, float):
        try:
            return kind(value)
        except ValueError:
            continue
    return value


def _print_environment(location: EngineLocation, *, has_token: bool) -> None:
    """Say what the environment of those who search has to name."""
    from aladin_index.format.engine_location import is_folder

    if (location.engine == "qdrant" and is_folder(location.url)) or has_token:
        typer.echo(
            f"  to search it, set ALADIN_ENGINE_URL={location.url}: the folder alone does not "
            "decide this address"
        )


def _print_report(out: Path, location: EngineLocation, report: PushReport) -> None:
    from aladin_service.reports.index_facts import first_stage_fact

    held = ", ".join(f"{count} {target}" for target, count in report.counts.items())
    typer.echo(
        f"{out}: generation {report.generation} of {location.name} in {location.engine}, {held}"
    )
    for target, ann in report.first_stages.items():
        typer.echo(f"  {target}: {first_stage_fact(ann)}")
        if ann.recall < ann.recall_wanted:
            typer.echo(
                f"warning: {target}: {ann.factory} finds {ann.recall:.4f} of the nearest "
                f"{ann.recall_at}, {ann.recall_wanted} was wanted; choose another --engine-index, "
                "or other --index-param or --search-param",
                err=True,
            )
    resumed = {target: count for target, count in report.resumed.items() if count}
    if resumed:
        were = ", ".join(f"{count} {target}" for target, count in resumed.items())
        typer.echo(f"  from a push that was cut: {were}")
    if report.dropped:
        typer.echo(f"  generations removed: {', '.join(map(str, report.dropped))}")

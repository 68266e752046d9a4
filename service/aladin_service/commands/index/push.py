"""``aladin index push``."""

from __future__ import annotations

from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from aladin_service.commands.options import IndexArgument
from aladin_service.commands.progress import stderr_progress

if TYPE_CHECKING:
    from aladin_index.engines.push import PushReport
    from aladin_index.format.layout import EngineLocation


OutOption = Annotated[
    Path,
    typer.Option(
        "--out",
        metavar="FOLDER",
        help="Folder that stands for the index in Milvus: a new one, or that of an earlier "
        "push, whose options are the defaults.",
    ),
]
UrlOption = Annotated[
    str | None,
    typer.Option("--url", help="Address of Milvus: http://host:port or https://host:port."),
]
NameOption = Annotated[str | None, typer.Option("--name", help="Name of the index in Milvus.")]
ShardsOption = Annotated[int | None, typer.Option("--shards", min=1, help="Shards per collection.")]
ReplicasOption = Annotated[
    int | None, typer.Option("--replicas", min=1, help="Replicas per shard.")
]
EngineIndexOption = Annotated[
    str | None,
    typer.Option(
        "--engine-index",
        metavar="KIND",
        help="First stage that Milvus builds, such as hnsw, flat or ivf_flat.",
    ),
]
IndexParamsOption = Annotated[
    list[str] | None,
    typer.Option("--index-param", metavar="KEY=VALUE", help="Index build parameter; repeatable."),
]
SearchParamsOption = Annotated[
    list[str] | None,
    typer.Option("--search-param", metavar="KEY=VALUE", help="Search parameter; repeatable."),
]
ConsistencyOption = Annotated[
    str | None,
    typer.Option(
        "--consistency",
        metavar="LEVEL",
        help="Consistency of reads: session, strong, bounded or eventually.",
    ),
]
RecallOption = Annotated[
    float | None,
    typer.Option(
        "--ann-recall",
        help="Share of the exact nearest items that Milvus has to find: searches are as wide "
        "as this requires, unless --search-param sets the width. [default: as INDEX was built]",
    ),
]
BatchSizeOption = Annotated[
    int, typer.Option("--batch-size", min=1, help="Items per request to Milvus.")
]
KeepOption = Annotated[
    int,
    typer.Option(
        "--keep",
        min=1,
        help="Generations to keep in Milvus and its memory, the new one included.",
    ),
]
DiscardOption = Annotated[
    bool,
    typer.Option(
        "--discard-changes",
        help="Continue although the live generation in Milvus has additions or deletions: the "
        "new generation does not have them.",
    ),
]
UnlessLiveOption = Annotated[
    bool,
    typer.Option(
        "--unless-live",
        help="Do nothing if INDEX is live in Milvus in its present state: for jobs that run at "
        "every start.",
    ),
]


def push(
    index: IndexArgument,
    out: OutOption,
    url: UrlOption = None,
    name: NameOption = None,
    shards: ShardsOption = None,
    replicas: ReplicasOption = None,
    engine_index: EngineIndexOption = None,
    index_params: IndexParamsOption = None,
    search_params: SearchParamsOption = None,
    consistency: ConsistencyOption = None,
    ann_recall: RecallOption = None,
    batch_size: BatchSizeOption = 256,
    keep: KeepOption = 2,
    discard_changes: DiscardOption = False,
    unless_live: UnlessLiveOption = False,
) -> None:
    """Push an index to Milvus, a distributed vector database.

    In: INDEX, an index of files with its additions and deletions; Milvus, which has to be
    running. Out: a new generation in Milvus, live once it is complete, counted and searchable,
    and picked up by running services; the folder --out, which records where the index is and holds
    its model. Commands that need no index files accept this folder in place of INDEX: serve,
    search, evaluate, index add, delete and info. Stdout lists what was pushed, how wide searches
    are, and which share of the exact nearest items they find.

    An interrupted push continues when the same command is run again; until it is complete,
    searches are answered from the generation that was live before. The token is read from
    ALADIN_ENGINE_TOKEN and never stored; it is only sent to an address named by --url or
    ALADIN_ENGINE_URL. Run one push at a time per name.
    """
    from aladin_index.engines.push import PushSettings, push_index
    from aladin_index.format.layout import location_of
    from aladin_index.open import connect
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
    location = _location(location_of(out), given)
    settings = PushSettings(
        batch_size=batch_size,
        keep=keep,
        ann_recall=ann_recall,
        discard_changes=discard_changes,
        unless_live=unless_live,
    )
    options = read_settings().engine_options
    if options.url is None:
        options = replace(options, url=url)  # --url is trusted
    with closing(connect(location, options)) as client, stderr_progress() as progress:
        report = push_index(index, out, location, client, settings, progress)
    _print_report(out, location, report)
    if options.token is not None:
        typer.echo(
            f"  to search it, set ALADIN_ENGINE_URL={location.url}: the token is not sent to an "
            "address that the folder alone names"
        )


def _location(known: EngineLocation | None, given: dict[str, Any]) -> EngineLocation:
    """Combine the location of an earlier push with the options of this one."""
    from aladin_index.format.layout import EngineLocation
    from aladin_network.errors import ConfigError

    if known is not None:
        return replace(known, **given)
    missing = [f"--{key}" for key in ("url", "name") if key not in given]
    if missing:
        raise ConfigError(f"a first push needs --url and --name: no {', '.join(missing)}")
    return EngineLocation(**given)


def _parameters(option: str, written: list[str] | None) -> dict[str, int | float | str] | None:
    """Parse KEY=VALUE pairs; a value that looks like a number becomes one."""
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


def _print_report(out: Path, location: EngineLocation, report: PushReport) -> None:
    from aladin_service.reports.show import line, plain

    held = ", ".join(f"{count} {target}" for target, count in report.counts.items())
    typer.echo(f"{out}: generation {report.generation} of {location.name} in Milvus, {held}")
    for target, ann in report.first_stages.items():
        typer.echo(f"  {target}: {line(plain(ann, 'curve'))}")
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

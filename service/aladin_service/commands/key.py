"""``aladin key``: the file of API keys."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from aladin_service.commands.help_style import CommandApp
from aladin_service.commands.options import JsonOption

if TYPE_CHECKING:
    from aladin_service.api_key import ApiKey, Scope

app = CommandApp(
    help="Create, list and remove the API keys of a service.",
)
NameArgument = Annotated[str, typer.Argument(metavar="NAME", help="Name of the key.")]
KeysOption = Annotated[
    Path,
    typer.Option(
        "--keys",
        metavar="FILE",
        dir_okay=False,
        envvar="ALADIN_KEYS_FILE",
        help="File of the API keys.",
    ),
]


def _scope(word: str) -> Scope:
    # Typer accepts a Literal for a single value, but not for a list.
    from aladin_service.api_key import SCOPES

    for scope in SCOPES:
        if word == scope:
            return scope
    raise typer.BadParameter(f"{word!r} is not one of {', '.join(map(repr, SCOPES))}.")


@app.command("add")
def add(
    name: NameArgument,
    keys: KeysOption,
    scope: Annotated[
        list[str] | None,
        typer.Option(
            "--scope",
            metavar="[read|write|metrics]",
            parser=_scope,
            help="What the key permits; repeatable: read (search and read, the default), write, "
            "metrics (scrape metrics). No scope implies another.",
        ),
    ] = None,
    rate: Annotated[
        float | None,
        typer.Option(
            "--rate",
            metavar="N",
            help="Requests per second in the long run. [default: unlimited]",
        ),
    ] = None,
    burst: Annotated[
        int | None,
        typer.Option(
            "--burst",
            metavar="N",
            min=1,
            help="Requests that may arrive at once. [default: two seconds' worth of --rate]",
        ),
    ] = None,
) -> None:
    """Create an API key.

    In: FILE, created if it does not exist; a running service picks up the new key.

    Out: the key on stdout, only this once: FILE stores a digest of it.
    """
    from aladin_network.errors import ConfigError
    from aladin_service.api_key import SCOPES
    from aladin_service.keys_file import add_key

    if rate is not None and not 0 < rate < float("inf"):
        raise ConfigError(f"--rate: expected a number above 0, got {rate}")
    if rate is None and burst is not None:
        raise ConfigError("--burst: expected --rate with it")
    if rate is not None and burst is None:
        burst = max(1, round(2 * rate))
    scopes: list[Scope] = [each for each in SCOPES if each in (scope or ["read"])]
    secret = add_key(keys, name, scopes, requests_per_s=rate, burst=burst)
    typer.echo(secret)
    typer.echo(f"the key {name!r} may {' and '.join(scopes)}; it is not shown again", err=True)


@app.command("list")
def list_keys(keys: KeysOption, as_json: JsonOption = False) -> None:
    """List the API keys of a file.

    In: FILE. Out: names, scopes, rates and creation times of the keys on stdout. The keys
    themselves cannot be listed.
    """
    from aladin_service.keys_file import read_keys

    known = read_keys(keys)
    if as_json:
        typer.echo(json.dumps([_described(key) for key in known], indent=2))
        return
    from rich.table import Table

    from aladin_service.reports.tables import print_table

    table = Table("name", "scopes", "requests/s", "burst", "created")
    for key in known:
        rate = "any" if key.requests_per_s is None else f"{key.requests_per_s:g}"
        burst = "" if key.burst is None else str(key.burst)
        table.add_row(key.name, ", ".join(sorted(key.scopes)), rate, burst, key.created)
    print_table(table)


@app.command("remove")
def remove(name: NameArgument, keys: KeysOption) -> None:
    """Remove an API key.

    In: FILE. Out: FILE without the key; a running service refuses it within a second.
    """
    from aladin_service.keys_file import remove_key

    remove_key(keys, name)
    typer.echo(f"the key {name!r} is removed", err=True)


def _described(key: ApiKey) -> dict[str, Any]:
    return {
        "name": key.name,
        "scopes": sorted(key.scopes),
        "requests_per_s": key.requests_per_s,
        "burst": key.burst,
        "created": key.created,
    }

"""``aladin key list``."""

from __future__ import annotations

import json
from typing import Annotated, Any

import typer

from aladin_service.commands.key.arguments import KeysOption
from aladin_service.keys.api_key import ApiKey


def list_(
    keys: KeysOption,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON, not a table.")] = False,
) -> None:
    """List the API keys of a file.

    In: FILE. Out: on stdout the keys' names, scopes, rates and when they were made; the keys
    themselves nobody can list.
    """
    from aladin_service.keys.keys_file import read_keys

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


def _described(key: ApiKey) -> dict[str, Any]:
    return {
        "name": key.name,
        "scopes": sorted(key.scopes),
        "requests_per_s": key.requests_per_s,
        "burst": key.burst,
        "created": key.created,
    }

"""``aladin key add``."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

import typer

from aladin_service.commands.key.arguments import KeysOption, NameArgument
from aladin_service.keys.api_key import Scope


class ScopeName(StrEnum):
    """What a key is for."""

    read = "read"
    write = "write"
    metrics = "metrics"


def add(
    name: NameArgument,
    keys: KeysOption,
    scope: Annotated[
        list[ScopeName] | None,
        typer.Option(
            "--scope",
            help="What its user may do, as often as needed: search and read (the default), "
            "write, scrape metrics. None implies another.",
        ),
    ] = None,
    rate: Annotated[
        float | None,
        typer.Option(
            "--rate", metavar="N", help="Requests a second in the long run; none: any number."
        ),
    ] = None,
    burst: Annotated[
        int | None,
        typer.Option(
            "--burst",
            metavar="N",
            min=1,
            help="Requests that may come at once; two seconds' worth of the rate if not given.",
        ),
    ] = None,
) -> None:
    """Make an API key.

    In: FILE, which is made if it is not there; a running service takes the new key up.

    Out: the key on stdout, this once: FILE keeps its digest alone.
    """
    from aladin_network.errors import ConfigError
    from aladin_service.keys.keys_file import add_key

    if rate is not None and not 0 < rate < float("inf"):
        raise ConfigError(f"--rate: expected a number above 0, got {rate}")
    if rate is None and burst is not None:
        raise ConfigError("--burst: expected --rate with it")
    if rate is not None and burst is None:
        burst = max(1, round(2 * rate))
    scopes: list[Scope] = [each.value for each in scope or [ScopeName.read]]
    secret = add_key(keys, name, scopes, requests_per_s=rate, burst=burst)
    typer.echo(secret)
    typer.echo(f"the key {name!r} may {' and '.join(scopes)}; it is not shown again", err=True)

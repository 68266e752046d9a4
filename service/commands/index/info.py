"""``aladin index info``."""

from __future__ import annotations

import json
from typing import Annotated

import typer

from service.commands.index.arguments import IndexArgument


def info(
    index: IndexArgument,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON, not a table.")] = False,
) -> None:
    """Say what an index holds.

    In: INDEX. Out: on stdout its generation, model, sizes and first stage.
    """
    from index.info import describe
    from service.index_facts import index_data, index_facts
    from service.tables import facts_table, print_table

    described = describe(index)
    if as_json:
        typer.echo(json.dumps(index_data(described), indent=2))
    else:
        print_table(facts_table(index_facts(described)))

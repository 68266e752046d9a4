"""``aladin key``: the file of API keys."""

from __future__ import annotations

import typer

from aladin_service.commands.key import add, list_, remove

app = typer.Typer(
    no_args_is_help=True,
    rich_markup_mode=None,
    help="Make, list and remove the API keys of a service.",
)
app.command("add")(add.add)
app.command("list")(list_.list_)
app.command("remove")(remove.remove)

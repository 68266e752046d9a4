"""``aladin regions``: ready-made regions for networks that read them."""

from __future__ import annotations

import typer

from aladin_service.commands.regions import extract

app = typer.Typer(
    no_args_is_help=True, rich_markup_mode=None, help="Make the regions that region models read."
)
app.command("extract")(extract.extract)

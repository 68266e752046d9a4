"""``aladin convert``: other people's networks as checkpoints of this project."""

from __future__ import annotations

import typer

from aladin_service.commands.convert import aladin, oscar, towers

app = typer.Typer(
    no_args_is_help=True,
    rich_markup_mode=None,
    help="Convert other people's networks into checkpoints.",
)
app.command("oscar")(oscar.oscar)
app.command("aladin")(aladin.aladin)
app.command("towers")(towers.towers)

"""Printed reports of the commands that create a generation."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import typer

if TYPE_CHECKING:
    from aladin_index.encode.source_items import PhotoPlaces
    from aladin_index.format.records import SkippedItem
    from aladin_network.types import Target
    from aladin_training.data.folder_rules import FolderRules


def print_generation(
    index: Path,
    generation: int,
    counts: Mapping[Target, int],
    left_out: Sequence[SkippedItem] = (),
    more: str = "",
) -> None:
    """Print the contents of the live generation and, on stderr, the skipped items.

    Args:
        index: Folder of the index.
        generation: Number of the live generation.
        counts: Number of images and of texts.
        left_out: Items that could not be used.
        more: Text for the end of the line.
    """
    from aladin_index.generations.info import describe
    from aladin_service.reports.index_facts import recall_warnings, taken_over_line

    for item_id, reason in left_out:
        typer.echo(f"left out {item_id}: {reason}", err=True)
    info = describe(index)
    for warning in recall_warnings(info):
        typer.echo(f"warning: {warning}", err=True)
    taken_over = taken_over_line(info)
    if taken_over is not None:
        typer.echo(taken_over, err=True)
    held = ", ".join(f"{count} {target}" for target, count in counts.items())
    missing = f", {len(left_out)} left out" if left_out else ""
    typer.echo(f"{index}: generation {generation}, {held}{missing}{more}")


def warn_of_places(places: PhotoPlaces, rules: FolderRules | None = None) -> None:
    """Print, on stderr, which photos are outside of their source's folder, and what was left out.

    Args:
        places: Where the photos are.
        rules: What of a folder was left out without being named, or None for another source.
    """
    if rules is not None and rules.summary is not None:
        typer.echo(f"not looked at: {rules.summary}", err=True)
    if places.warning is not None:
        typer.echo(f"warning: {places.warning}", err=True)

"""``aladin index build``."""

from __future__ import annotations

import math
from dataclasses import replace
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from service.progress import stderr_progress


class Tokens(StrEnum):
    """How the second stage's tokens are stored."""

    float16 = "float16"
    int8 = "int8"


def build(
    model: Annotated[
        Path, typer.Option("--model", metavar="CHECKPOINT", help="Network that encodes the items.")
    ],
    out: Annotated[Path, typer.Option("--out", help="Folder of the index; new or grown.")],
    images: Annotated[
        Path | None,
        typer.Option("--images", metavar="SRC", help="JSONL, Karpathy JSON or folder of photos."),
    ] = None,
    texts: Annotated[
        Path | None,
        typer.Option(
            "--texts", metavar="SRC", help="JSONL of texts, or a data set whose captions to take."
        ),
    ] = None,
    split: Annotated[
        str | None, typer.Option("--split", help="Only this split of a data set; else all of it.")
    ] = None,
    ann: Annotated[
        str,
        typer.Option(
            "--ann",
            metavar="auto|exact|FACTORY",
            help="First stage: chosen by size, exhaustive, or a FAISS factory string.",
        ),
    ] = "auto",
    tokens: Annotated[
        Tokens, typer.Option("--tokens", help="How the second stage's tokens are stored.")
    ] = Tokens.float16,
    shards: Annotated[
        int | None,
        typer.Option("--shards", min=1, help="Parts of the build; a kill costs one of them."),
    ] = None,
    resume: Annotated[
        bool, typer.Option("--resume", help="Go on with the interrupted build in --out.")
    ] = False,
) -> None:
    """Build an index of photos, of texts, or of both.

    In: --model, and --images, --texts or both. Out: in the folder --out, a new generation of the
    index, live once it is whole, with a copy of the model; on stdout, what it holds. Photos that
    cannot be used are left out and named on stderr.
    """
    from index.builder import build_index
    from index.settings import BuildSettings
    from service.sources import image_items, text_items

    photos = None if images is None else list(image_items(images, split))
    lines = None if texts is None else list(text_items(texts, split))
    settings = BuildSettings(ann=ann, token_dtype=tokens.value, resume=resume)
    if shards is not None:
        largest = max(len(photos or ()), len(lines or ()), 1)
        settings = replace(settings, shard_items=math.ceil(largest / shards))
    with stderr_progress() as progress:
        report = build_index(model, out, photos, lines, settings, progress)
    for item_id, reason in report.left_out:
        typer.echo(f"left out {item_id}: {reason}", err=True)
    counts = ", ".join(f"{count} {target}" for target, count in report.counts.items())
    left_out = f", {len(report.left_out)} left out" if report.left_out else ""
    typer.echo(f"{out}: generation {report.generation}, {counts}{left_out}")

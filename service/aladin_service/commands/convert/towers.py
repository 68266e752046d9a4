"""``aladin convert towers``."""

from __future__ import annotations

import dataclasses
import json
from typing import TYPE_CHECKING, Annotated

import typer

from aladin_service.commands.convert.arguments import OutOption, SeedOption

if TYPE_CHECKING:
    from aladin_network.conversion.towers import TowersReport


def towers(
    source: Annotated[
        str,
        typer.Argument(
            metavar="SOURCE",
            help="Folder or hub name of a CLIP, SigLIP, SigLIP 2, Chinese-CLIP or MetaCLIP 2, or "
            "of a vision network such as DINOv2 or ViT.",
        ),
    ],
    out: OutOption,
    text: Annotated[
        str | None,
        typer.Option(
            "--text",
            metavar="SOURCE",
            help="Folder or hub name of another text tower, e.g. XLM-R. [default: SOURCE's own]",
        ),
    ] = None,
    size: Annotated[
        int | None,
        typer.Option(
            "--size", min=1, help="Side of the photos in pixels. [default: the network's own]"
        ),
    ] = None,
    max_patches: Annotated[
        int | None,
        typer.Option(
            "--max-patches", min=1, help="Patches of a photo, for NaFlex. [default: its own]"
        ),
    ] = None,
    pyramid: Annotated[
        list[int] | None,
        typer.Option(
            "--pyramid",
            min=1,
            help="Average the patches to a grid of this side; may be given several times.",
        ),
    ] = None,
    align_dim: Annotated[
        int, typer.Option("--align-dim", min=1, help="Size of the tokens in the index.")
    ] = 128,
    max_tokens: Annotated[
        int | None,
        typer.Option(
            "--max-tokens",
            min=3,
            help="Longest text in tokens. [default: what the network takes, at most 128]",
        ),
    ] = None,
    seed: SeedOption = 0,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print what was made as JSON on stdout.")
    ] = False,
) -> None:
    """Make a checkpoint of two pretrained towers.

    In: SOURCE. Out: in the folder --out, a network whose matching score is the towers' own
    zero-shot similarity, for `index build`, `search` and `serve` as it is, and for `start` of a
    recipe; on stdout, the folder. Its order is by that score until a recipe trains the alignment.
    Two towers that do not belong together get new heads, which have to be trained first.
    """
    from aladin_network.conversion.towers import TowersOptions, convert_towers

    options = TowersOptions(
        text=text,
        size_px=size,
        max_patches=max_patches,
        pyramid=tuple(pyramid or ()),
        align_dim=align_dim,
        max_tokens=max_tokens,
        seed=seed,
    )
    report = convert_towers(source, out, options)
    if as_json:
        typer.echo(json.dumps(dataclasses.asdict(report) | {"out": str(report.out)}, indent=2))
        return
    typer.echo(_in_words(report), err=True)
    typer.echo(str(report.out))


def _in_words(report: TowersReport) -> str:
    regions = "as many regions as a photo has" if report.regions is None else report.regions
    sizes = (
        f"{report.dim} numbers an embedding, regions a photo: {regions}, "
        f"texts of up to {report.max_tokens} tokens"
    )
    if report.zero_shot:
        return f"searches by the towers' own similarity: {sizes}"
    return f"the heads are new, train them before searching: {sizes}"

"""``aladin convert oscar``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from aladin_service.commands.convert.arguments import (
    JsonOption,
    OutOption,
    SeedOption,
    print_conversion,
)


def oscar(
    checkpoint: Annotated[
        Path,
        typer.Argument(
            metavar="CHECKPOINT",
            help="Folder with pytorch_model.bin, config.json and vocab.txt of OSCAR or VinVL.",
        ),
    ],
    out: OutOption,
    max_tokens: Annotated[
        int,
        typer.Option(
            "--max-tokens", min=3, help="Longest text, and longest labels of a photo, in tokens."
        ),
    ] = 50,
    max_regions: Annotated[
        int, typer.Option("--max-regions", min=1, help="Regions of a photo that are read.")
    ] = 34,
    official: Annotated[
        bool,
        typer.Option(
            "--official",
            help="Compute as ALADIN's published code where it differs from the paper.",
        ),
    ] = False,
    seed: SeedOption = 0,
    as_json: JsonOption = False,
) -> None:
    """Convert a checkpoint of OSCAR or VinVL: the backbone that ALADIN starts from.

    In: CHECKPOINT, read without running anything in it. Out: in the folder --out, a network of
    the kind `regions`, ready for `start` of a recipe, whose alignment head has no parameters and
    whose matching head is new; on stdout, the folder. On stderr, what was left and why. A tensor
    that is missing, has another shape or is not known is an error that names it.
    """
    from aladin_network.conversion.oscar import RegionsOptions, convert_oscar

    options = RegionsOptions(
        max_tokens=max_tokens, max_regions=max_regions, official=official, seed=seed
    )
    print_conversion(convert_oscar(checkpoint, out, options), as_json)

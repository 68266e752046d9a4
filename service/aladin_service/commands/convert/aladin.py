"""``aladin convert aladin``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from aladin_service.commands.convert.arguments import JsonOption, OutOption, print_conversion


def aladin(
    checkpoint: Annotated[
        Path,
        typer.Argument(
            metavar="CHECKPOINT", help="File that ALADIN's published code saved (.pth.tar)."
        ),
    ],
    oscar: Annotated[
        Path,
        typer.Option(
            "--oscar",
            metavar="FOLDER",
            help="Folder with config.json and vocab.txt of the OSCAR or VinVL checkpoint that it "
            "was trained from; its weights are not needed.",
        ),
    ],
    out: OutOption,
    max_tokens: Annotated[
        int | None,
        typer.Option(
            "--max-tokens",
            min=3,
            help="Longest text, and longest labels of a photo, in tokens. "
            "[default: as in training, else 50]",
        ),
    ] = None,
    max_regions: Annotated[
        int | None,
        typer.Option(
            "--max-regions",
            min=1,
            help="Regions of a photo that are read. [default: as in training, else 34]",
        ),
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Convert the checkpoint that ALADIN's authors published, with the scores that it has there.

    In: CHECKPOINT, read without running anything in it, and two files of the OSCAR or VinVL
    folder, which it lacks. Out: in the folder --out, a network of the kind `regions` that
    computes as the published code does (training/PAPERS.md says where that differs from the
    paper), ready to index, serve and train on; on stdout, the folder. On stderr, what was left
    and why. A tensor that is missing, has another shape or is not known is an error that names
    it.
    """
    from aladin_network.conversion.aladin_release import convert_aladin

    report = convert_aladin(checkpoint, oscar, out, max_tokens=max_tokens, max_regions=max_regions)
    print_conversion(report, as_json)

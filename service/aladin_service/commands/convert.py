"""``aladin convert``: published networks as checkpoints of this project."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from aladin_service.commands.help_style import CommandApp

if TYPE_CHECKING:
    from aladin_network.conversion.tensors import ConversionReport
    from aladin_network.conversion.towers import TowersReport

app = CommandApp(
    help="Convert published networks into checkpoints.",
)
OutOption = Annotated[
    Path, typer.Option("--out", metavar="DIR", help="Folder of the new checkpoint; must be new.")
]
SeedOption = Annotated[int, typer.Option("--seed", help="Seeds the initial values of new tensors.")]
JsonOption = Annotated[
    bool, typer.Option("--json", help="Print what became of every tensor as JSON on stdout.")
]
TextTokensOption = Annotated[
    int,
    typer.Option(
        "--max-tokens", min=3, help="Longest text, and longest labels of a photo, in tokens."
    ),
]


@app.command("oscar")
def oscar(
    checkpoint: Annotated[
        Path,
        typer.Argument(
            metavar="CHECKPOINT",
            help="Folder with pytorch_model.bin, config.json and vocab.txt of OSCAR or VinVL.",
        ),
    ],
    out: OutOption,
    max_tokens: TextTokensOption = 50,
    max_regions: Annotated[
        int, typer.Option("--max-regions", min=1, help="Regions to read per photo.")
    ] = 34,
    official: Annotated[
        bool,
        typer.Option(
            "--official",
            help="Compute like ALADIN's published code where it differs from the paper.",
        ),
    ] = False,
    seed: SeedOption = 0,
    as_json: JsonOption = False,
) -> None:
    """Convert a checkpoint of OSCAR or VinVL, ALADIN's backbone.

    In: CHECKPOINT, read without executing anything in it. Out: in the folder --out, a
    network of the kind `regions`, ready for `start` of a recipe, whose alignment head has no
    parameters and whose matching head is new; the folder is printed on stdout. Skipped tensors are
    listed on stderr with the reason. A tensor that is missing, has another shape or is unknown is
    an error that names it.
    """
    from aladin_network.conversion.oscar import RegionsOptions, convert_oscar

    options = RegionsOptions(
        max_tokens=max_tokens, max_regions=max_regions, official=official, seed=seed
    )
    _print_conversion(convert_oscar(checkpoint, out, options), as_json)


@app.command("aladin")
def aladin(
    checkpoint: Annotated[
        Path,
        typer.Argument(
            metavar="CHECKPOINT", help="File saved by ALADIN's published code (.pth.tar)."
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
            help="Regions to read per photo. [default: as in training, else 34]",
        ),
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Convert the checkpoint that ALADIN's authors published.

    In: CHECKPOINT, read without executing anything in it, and two files of the OSCAR or VinVL
    folder, which it lacks. Out: in the folder --out, a network of the kind `regions` that
    computes like the published code (training/PAPERS.md lists where that differs from the paper),
    ready to index, serve and train on; the folder is printed on stdout. Skipped tensors are listed
    on stderr with the reason. A tensor that is missing, has another shape or is unknown is an
    error that names it.
    """
    from aladin_network.conversion.aladin_release import convert_aladin

    report = convert_aladin(checkpoint, oscar, out, max_tokens=max_tokens, max_regions=max_regions)
    _print_conversion(report, as_json)


def _print_conversion(report: ConversionReport, as_json: bool) -> None:
    """Export the graphs, and print the result: a table on stderr and the folder, or JSON."""
    from aladin_network.graphs.export import export_where_possible
    from aladin_service.reports.tables import conversion_data, conversion_table, print_table

    export_where_possible(report.out)
    if as_json:
        typer.echo(json.dumps(conversion_data(report), indent=2))
        return
    print_table(conversion_table(report), stderr=True)
    typer.echo(str(report.out))


@app.command("towers")
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
            "--max-patches", min=1, help="Patches per photo, for NaFlex. [default: its own]"
        ),
    ] = None,
    pyramid: Annotated[
        list[int] | None,
        typer.Option(
            "--pyramid",
            min=1,
            help="Average the patches to a grid with this side; repeatable.",
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
        bool, typer.Option("--json", help="Print the result as JSON on stdout.")
    ] = False,
) -> None:
    """Make a checkpoint of two pretrained towers.

    In: SOURCE. Out: in the folder --out, a network whose matching score is the towers'
    zero-shot similarity, ready for `index build`, `search` and `serve`, and for `start` of a
    recipe; the folder is printed on stdout. Until a recipe trains the alignment, results are
    ordered by the matching score. Two towers that do not belong together get new heads, which have
    to be trained first.
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
    # Other heads have to be trained first.
    if report.zero_shot:
        from aladin_network.graphs.export import export_where_possible

        export_where_possible(report.out)
    if as_json:
        typer.echo(json.dumps(dataclasses.asdict(report) | {"out": str(report.out)}, indent=2))
        return
    typer.echo(_summary(report), err=True)
    typer.echo(str(report.out))


def _summary(report: TowersReport) -> str:
    regions = "as many regions as a photo has" if report.regions is None else report.regions
    sizes = (
        f"{report.dim} numbers an embedding, regions a photo: {regions}, "
        f"texts of up to {report.max_tokens} tokens"
    )
    if report.zero_shot:
        return f"searches by the towers' own similarity: {sizes}"
    return f"the heads are new, train them before searching: {sizes}"

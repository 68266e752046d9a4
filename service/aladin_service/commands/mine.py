"""``aladin mine``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from aladin_network.types import ScoreName
from aladin_service.commands.options import (
    SPLIT_HELP,
    RegionLabelsOption,
    RegionsOption,
    chosen_split,
    opened_regions,
)
from aladin_service.commands.progress import stderr_progress
from aladin_training.config.defaults import FEATURE_CACHE, NUM_IMAGES, NUM_TEXTS


def mine(
    checkpoint: Annotated[
        Path, typer.Argument(metavar="CHECKPOINT", help="Folder of the network that scores.")
    ],
    data: Annotated[
        Path, typer.Argument(metavar="DATA", help="Data set with captions, of any format.")
    ],
    out: Annotated[Path, typer.Option("--out", help="File of the negatives; safetensors.")],
    split: Annotated[str, typer.Option("--split", help=SPLIT_HELP)] = "train",
    score: Annotated[ScoreName, typer.Option("--score", help="Score to mine by.")] = "matching",
    texts: Annotated[
        int, typer.Option("--texts", min=1, help="Captions to keep for each photo.")
    ] = NUM_TEXTS,
    images: Annotated[
        int, typer.Option("--images", min=1, help="Photos to keep for each caption.")
    ] = NUM_IMAGES,
    memory_mb: Annotated[
        int, typer.Option("--memory-mb", min=1, help="Maximum MiB of scores held in memory.")
    ] = 512,
    cache: Annotated[
        Path, typer.Option("--cache", help="Folder for the outputs of frozen encoders.")
    ] = Path(FEATURE_CACHE),
    regions: RegionsOption = None,
    region_labels: RegionLabelsOption = None,
) -> None:
    """Find the hardest negatives of all photos and captions.

    In: CHECKPOINT, and the photos and captions of DATA. Out: in the file --out, for each photo
    the captions and for each caption the photos that score highest and do not belong to it; the
    path of the file is printed on stdout. An existing file with the same content is kept; a file
    mined from other data, by another network or with other settings is never replaced.
    """
    from aladin_network.files import check_writable
    from aladin_training.mining.miner import mine_file

    check_writable("--out", out)
    store = opened_regions(regions, region_labels)
    with stderr_progress() as progress:
        mine_file(
            checkpoint,
            data,
            chosen_split(split),
            out,
            cache=cache.expanduser(),
            score=score,
            num_texts=texts,
            num_images=images,
            memory_budget_bytes=memory_mb * 2**20,
            progress=progress,
            regions=store,
        )
    typer.echo(str(out))

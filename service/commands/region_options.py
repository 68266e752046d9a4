"""Options of the commands that take a data set, for networks that read ready-made regions."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from training.data.regions import RegionStore

RegionsOption = Annotated[
    Path | None,
    typer.Option(
        "--regions",
        metavar="PATH",
        help="Ready-made regions of the photos, for networks that read these: VinVL's or bottom-up "
        "attention's .tsv, a folder of .npz or .npy files, HDF5, or SCAN's precomp folder. Files "
        "of photos may then be missing.",
    ),
]
RegionLabelsOption = Annotated[
    Path | None,
    typer.Option(
        "--region-labels",
        metavar="FILE",
        help="Labels of --regions where they lie apart: .tsv such as predictions.tsv, or .json.",
    ),
]


def opened_regions(regions: Path | None, labels: Path | None) -> RegionStore | None:
    """Open what --regions and --region-labels name; None: nothing.

    Raises:
        InputError: there are labels without regions.
        DataError: a file cannot be used.
    """
    from aladin.errors import InputError
    from training.data.regions import open_regions

    if regions is None:
        if labels is not None:
            raise InputError("--region-labels: expected also --regions, which they belong to")
        return None
    return open_regions(regions, labels)

"""Options of the commands that create an index."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from aladin_network.types import DeviceName, TokenDtype
from aladin_service.commands.options import parse_bytes

if TYPE_CHECKING:
    from aladin_network.photos.decoding import ImageLimits

MODEL_HELP = (
    "Network that encodes the items: a checkpoint, or a dual encoder such as CLIP or SigLIP, as a "
    "folder of the transformers library or by its name on the hub, which is converted once."
)
ModelOption = Annotated[Path, typer.Option("--model", metavar="MODEL", help=MODEL_HELP)]
OutOption = Annotated[
    Path, typer.Option("--out", help="Folder of the index: a new one, or with --replace another.")
]
ReplaceOption = Annotated[
    bool,
    typer.Option(
        "--replace",
        help="Replace the index in --out by a new generation, and go back with `aladin index "
        "rollback`. The index of a library is never replaced.",
    ),
]
ImagesOption = Annotated[
    list[Path] | None,
    typer.Option(
        "--images",
        metavar="SRC",
        help="Folder of photos, a photo or a pattern of photos, JSONL, Karpathy JSON, CSV, TSV, "
        "parquet or webdataset tars; or several of them, one after another.",
    ),
]
TextsOption = Annotated[
    list[Path] | None,
    typer.Option(
        "--texts",
        metavar="SRC",
        help="JSONL or table of texts, or a data set whose captions to take; or several of them.",
    ),
]
AnnOption = Annotated[
    str,
    typer.Option(
        "--ann",
        metavar="auto|exact|exact-align|FACTORY",
        help="First stage: chosen by size, memory and recall; exhaustive; exhaustive, and searches "
        "take all items as candidates of the second stage; or a FAISS factory string.",
    ),
]
MemoryOption = Annotated[
    int | None,
    typer.Option(
        "--memory-budget",
        metavar="SIZE",
        parser=parse_bytes,
        help="Memory that the first stages may take, e.g. 8GiB; for --ann auto.",
    ),
]
RecallOption = Annotated[
    float,
    typer.Option(
        "--ann-recall", help="Share of the exact nearest items that the first stage has to find."
    ),
]
TokensOption = Annotated[
    TokenDtype, typer.Option("--tokens", help="Stored form of the second stage's tokens.")
]
FieldsOption = Annotated[
    str | None,
    typer.Option(
        "--filter-fields",
        metavar="A,B",
        help="Metadata fields to index for filters. [default: all]",
    ),
]
ShardsOption = Annotated[
    int | None,
    typer.Option(
        "--shards",
        min=1,
        help="Pieces in which the work is saved: after a kill, at most one is done again. The "
        "index is the same for any number. [default: one for about 2,048 items]",
    ),
]
PartOption = Annotated[
    str,
    typer.Option(
        "--part",
        metavar="I/N",
        help="Build only the I-th of N parts of the source, I from 1, e.g. one on each machine; "
        "`aladin index merge` merges the parts.",
    ),
]
BatchSizeOption = Annotated[
    int, typer.Option("--batch-size", min=1, help="Items that are encoded and written together.")
]
ReadersOption = Annotated[
    int | None,
    typer.Option(
        "--readers",
        min=1,
        help="Threads that read and decode photos; with --ray, per worker. [default: one per core]",
    ),
]
BuildDeviceOption = Annotated[DeviceName, typer.Option("--device", help="Where the network runs.")]
ResumeOption = Annotated[
    bool,
    typer.Option("--resume", help="Continue the interrupted build of the same items in --out."),
]
ExcludeOption = Annotated[
    list[str] | None,
    typer.Option(
        "--exclude",
        metavar="GLOB",
        help="Leave files and folders out of a folder of photos whose names match, such as '*.gif' "
        "or Screenshots, or, with a slash, whose paths in it match; repeatable. Hidden files and "
        "the folders of other programs (@eaDir, #recycle, $RECYCLE.BIN ...) are skipped anyway.",
    ),
]
MaxPixelsOption = Annotated[
    int | None,
    typer.Option(
        "--max-pixels",
        min=1,
        metavar="N",
        help="Largest number of pixels of a decoded photo; a larger JPEG is decoded at a reduced "
        "size, another photo is skipped. Decoding takes up to 17 bytes per pixel. "
        "[default: 64000000]",
    ),
]
ExifOption = Annotated[
    bool,
    typer.Option(
        "--exif/--no-exif",
        help="Read when, with which camera and where a photo was taken into its metadata: "
        "taken_at, camera, lat, lon. Whoever may search can see them.",
    ),
]


def image_limits(max_pixels: int | None) -> ImageLimits:
    """Return the limits of a photo, with --max-pixels if it is given."""
    from aladin_network.photos.decoding import DEFAULT_LIMITS

    return DEFAULT_LIMITS if max_pixels is None else replace(DEFAULT_LIMITS, max_pixels=max_pixels)


def fields_of(text: str | None) -> tuple[str, ...] | None:
    """Parse --filter-fields; an empty string names no field."""
    if text is None:
        return None
    return tuple(name.strip() for name in text.split(",") if name.strip())

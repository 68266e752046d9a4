"""Options of the commands that create an index."""

from __future__ import annotations

import re
from dataclasses import fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from aladin_network.types import DeviceName
from aladin_service.commands.flags import Flags
from aladin_service.commands.options import metadata_limits, parse_bytes

if TYPE_CHECKING:
    from aladin_index.settings import EncodeSettings
    from aladin_network.photos.decoding import ImageLimits

MAX_METADATA_HELP = (
    "Maximum size of an item's metadata, written as JSON. An item with a larger one is skipped."
    " [default: 64KiB]"
)
MODEL_HELP = (
    "Network that encodes the items: a checkpoint, or a dual encoder such as CLIP or SigLIP, as a "
    "folder of the transformers library or by its name on the hub, which is converted once."
)
ModelOption = Annotated[Path, typer.Option("--model", metavar="MODEL", help=MODEL_HELP)]
OutOption = Annotated[
    Path, typer.Option("--out", help="Folder of the index: a new one, or with --replace another.")
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
ReadersOption = Annotated[
    int | None,
    typer.Option(
        "--readers",
        min=1,
        help="Threads, or for a card processes, that read and decode photos; with --ray, per"
        " worker. [default: one per core]",
    ),
]
BuildDeviceOption = Annotated[
    DeviceName,
    typer.Option(
        "--device",
        help="Where the network runs, and FAISS trains and fills the inverted lists of the first "
        "stage; auto uses a CUDA device if there is one.",
    ),
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
MAX_PIXELS_HELP = (
    "Largest number of pixels of a decoded photo; a larger JPEG is decoded at a reduced size,"
    " another photo is skipped. Decoding takes up to 17 bytes per pixel. [default: 64000000]"
)
MaxPixelsOption = Annotated[
    int | None, typer.Option("--max-pixels", min=1, metavar="N", help=MAX_PIXELS_HELP)
]
ExifOption = Annotated[
    bool,
    typer.Option(
        "--exif/--no-exif",
        help="Read what a photo, and other programs' files beside it, tell into its metadata: "
        "titles, people, dates, places. Whoever may search can see them.",
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


# Fields of a build's settings that no command sets, or that a command makes of several options.
_WITHOUT_OPTION = ("default_candidates", "shard_items", "device")


def settings_flags(kind: type[EncodeSettings], *names: str) -> Flags:
    """Return the options of how items are read, encoded and indexed: of these fields, or all."""
    written: dict[str, Any] = {
        "limits": {
            "flag": "--max-pixels",
            "metavar": "N",
            "help": MAX_PIXELS_HELP,
            "parser": _image_limits,
        },
        "exif": ExifOption,
        "ann": {"metavar": "auto|exact|exact-align|FACTORY"},
        "memory_budget_bytes": {
            "flag": "--memory-budget",
            "metavar": "SIZE",
            "parser": parse_bytes,
        },
        "token_dtype": {"flag": "--tokens"},
        "filter_fields": {"metavar": "A,B", "parser": fields_of},
        "metadata": {
            "flag": "--max-metadata",
            "metavar": "SIZE",
            "help": MAX_METADATA_HELP,
            "parser": metadata_limits,
        },
        "part": {"metavar": "I/N", "parser": _part},
        "readers": ReadersOption,
        "device": BuildDeviceOption,
        "on_duplicate": {
            "help": "If an id is already in the index: add nothing at all, replace the old item, or"
            " keep the old item.",
        },
    }
    known = {each.name for each in fields(kind)}
    written |= dict.fromkeys(known.difference(names) if names else _WITHOUT_OPTION)
    return Flags(kind, written, {"readers": None, "replace": False})


def _image_limits(text: str) -> ImageLimits:
    if not text.isdecimal() or not int(text):
        raise typer.BadParameter(f"expected a whole number of at least 1, got {text!r}")
    return image_limits(int(text))


def _part(text: str) -> tuple[int, int]:
    match = re.fullmatch(r"(\d+)/(\d+)", text)
    if match is None:
        raise typer.BadParameter(f"expected a part such as 1/4, got {text!r}")
    return int(match[1]), int(match[2])

"""Options of the commands that create an index."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from aladin_network.types import DeviceName, TokenDtype
from aladin_service.commands.options import parse_bytes

ModelOption = Annotated[
    Path, typer.Option("--model", metavar="CHECKPOINT", help="Network that encodes the items.")
]
OutOption = Annotated[
    Path, typer.Option("--out", help="Folder of the index: a new one, or one to replace.")
]
ImagesOption = Annotated[
    Path | None,
    typer.Option(
        "--images",
        metavar="SRC",
        help="JSONL, Karpathy JSON, CSV, TSV, parquet, webdataset tars or folder of photos.",
    ),
]
TextsOption = Annotated[
    Path | None,
    typer.Option(
        "--texts",
        metavar="SRC",
        help="JSONL or table of texts, or a data set whose captions to take.",
    ),
]
AnnOption = Annotated[
    str,
    typer.Option(
        "--ann",
        metavar="auto|exact|FACTORY",
        help="First stage: chosen by size, memory and recall; exhaustive; or a FAISS factory "
        "string.",
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
        "--shard",
        metavar="I/N",
        help="Build only the I-th of N parts of the source, I from 1, e.g. one on each machine; "
        "`aladin index merge` merges the parts.",
    ),
]
BatchSizeOption = Annotated[
    int, typer.Option("--batch-size", min=1, help="Items per batch of the network.")
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


def fields_of(text: str | None) -> tuple[str, ...] | None:
    """Parse --filter-fields; an empty string names no field."""
    if text is None:
        return None
    return tuple(name.strip() for name in text.split(",") if name.strip())

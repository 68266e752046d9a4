"""``aladin index merge``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from service.commands.index.build import (
    AnnOption,
    FieldsOption,
    MemoryOption,
    RecallOption,
    fields_of,
)
from service.commands.index.reports import print_generation
from service.progress import stderr_progress


def merge(
    parts: Annotated[
        list[Path], typer.Argument(metavar="PART...", help="Folders of indexes of the same model.")
    ],
    out: Annotated[
        Path, typer.Option("--out", help="Folder of the index; a new one, or one to replace.")
    ],
    ann: AnnOption = "auto",
    memory_budget: MemoryOption = None,
    ann_recall: RecallOption = 0.99,
    filter_fields: FieldsOption = None,
) -> None:
    """Put indexes together that were built on different machines.

    In: PART..., built with the same model and the same --tokens; no id may be in two of them.
    Out: in the folder --out, a new generation with all their items, in the order of the parts,
    live once it is whole; on stdout, what it holds. Items that were added to a part, or removed
    from it, count. Nothing is encoded again. The parts stay as they are.

    The parts 1/N to N/N of `aladin index build --part`, given in this order, make the index that
    a build of the whole source would be: the same rows with the same encodings, and with float16
    tokens the same files; other tokens were rounded part by part. Fields for filters are those of
    the first part, unless --filter-fields is given. A merge that was killed is run again.
    """
    from index.building.merge import merge_indexes
    from index.settings import BuildSettings

    settings = BuildSettings(
        ann=ann,
        memory_budget_bytes=memory_budget,
        ann_recall=ann_recall,
        filter_fields=fields_of(filter_fields),
    )
    with stderr_progress() as progress:
        report = merge_indexes(parts, out, settings, progress)
    print_generation(out, report.generation, report.counts, more=f", from {len(parts)} parts")

"""``aladin index plan``."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

import typer

from aladin_network.types import TokenDtype
from aladin_service.commands.options import JsonOption, parse_bytes

MEMORY = "64GiB"


# Bits per token value, and the name of that format in `aladin index build --tokens`.
TokenBits = Literal["2", "4", "8", "16"]
_TOKEN_DTYPES: dict[TokenBits, TokenDtype] = {
    "2": "2bit",
    "4": "4bit",
    "8": "int8",
    "16": "float16",
}


def parse_count(text: str) -> int:
    """Parse a count: ``1e9``, ``2.5e6``, ``1_000_000``, ``5000``.

    Raises:
        BadParameter: If `text` is not a whole number above 0.
    """
    try:
        number = float(text)
    except ValueError:
        number = 0.0
    if not (1 <= number < 1e15 and number.is_integer()):
        raise typer.BadParameter(f"expected a whole number such as 1e9, got {text!r}")
    return int(number)


@dataclass(frozen=True)
class TokenShape:
    """Number of tokens of an item, and number of values of each."""

    tokens: int
    dim: int


def parse_shape(text: str) -> TokenShape:
    """Parse tokens and values per token: ``49x128``.

    Raises:
        BadParameter: If `text` has another form.
    """
    found = re.fullmatch(r"([1-9]\d{0,5})x([1-9]\d{0,4})", text.strip())
    if found is None:
        raise typer.BadParameter(f"expected TOKENSxVALUES such as 49x128, got {text!r}")
    return TokenShape(int(found[1]), int(found[2]))


ItemsOption = Annotated[
    int,
    typer.Option("--items", metavar="N", parser=parse_count, help="Number of photos, e.g. 1e9."),
]
DimOption = Annotated[int, typer.Option("--dim", min=1, help="Values per embedding.")]
TokensOption = Annotated[
    TokenShape,
    typer.Option(
        "--tokens", metavar="NxD", parser=parse_shape, help="Tokens per photo x values per token."
    ),
]
TokenBitsOption = Annotated[TokenBits, typer.Option("--token-bits", help="Bits per token value.")]
QpsOption = Annotated[float, typer.Option("--qps", help="Queries per second at peak load.")]
P95Option = Annotated[
    float, typer.Option("--p95-ms", help="95th percentile of the latency to achieve.")
]
CandidatesOption = Annotated[
    int, typer.Option("--candidates", min=1, help="Photos that the second stage re-ranks.")
]
WordsOption = Annotated[int, typer.Option("--words", min=1, help="Tokens per query.")]
ReplicasOption = Annotated[
    int, typer.Option("--replicas", min=1, help="Copies of everything; with 2, one may fail.")
]
KeepOption = Annotated[int, typer.Option("--keep", min=1, help="Generations kept on disk.")]
MachineMemoryOption = Annotated[
    int,
    typer.Option(
        "--machine-memory", metavar="SIZE", parser=parse_bytes, help="Memory per machine."
    ),
]
MachineCoresOption = Annotated[
    int, typer.Option("--machine-cores", min=1, help="Cores per machine.")
]
PhotosPerSecondOption = Annotated[
    float | None,
    typer.Option(
        "--photos-per-second",
        help="Photos that a machine encodes per second. [default: the rate of its cores with the "
        "measured network]",
    ),
]
BuildMachinesOption = Annotated[
    int,
    typer.Option("--build-machines", min=1, help="Machines that encode, each a part (--part i/n)."),
]
ConstantsOption = Annotated[
    Path | None,
    typer.Option(
        "--constants",
        metavar="FILE",
        dir_okay=False,
        help="Costs measured by `python -m benchmarks.search.constants --out FILE`. "
        "[default: those of this installation]",
    ),
]


def plan(
    items: ItemsOption,
    dim: DimOption = 256,
    tokens: TokensOption = "49x128",  # pyright: ignore[reportArgumentType]
    token_bits: TokenBitsOption = "8",
    qps: QpsOption = 10.0,
    p95_ms: P95Option = 100.0,
    candidates: CandidatesOption = 100,
    words: WordsOption = 12,
    replicas: ReplicasOption = 2,
    keep: KeepOption = 2,
    machine_memory: MachineMemoryOption = MEMORY,  # pyright: ignore[reportArgumentType]
    machine_cores: MachineCoresOption = 16,
    photos_per_second: PhotosPerSecondOption = None,
    build_machines: BuildMachinesOption = 1,
    constants: ConstantsOption = None,
    as_json: JsonOption = False,
) -> None:
    """Estimate the memory, machines and time that an index needs.

    In: numbers. Out: on stdout, memory, disk, machines, build hours and expected latency of an
    index of files, and of one in an engine such as Milvus. They are computed from measured costs;
    docs/PLAN.md has the formulas. The output tells what was checked against real indexes and what
    is extrapolated beyond them. A plan covers the photos or the texts: for texts, run it with
    their numbers.
    """
    from aladin_index.capacity.constants import (
        PACKAGED_CONSTANTS,
        read_constants,
        read_measurements,
    )
    from aladin_index.capacity.plan import make_plan
    from aladin_index.capacity.workload import Workload
    from aladin_service.reports.plan_report import plan_data, plan_notes, plan_table
    from aladin_service.reports.tables import print_table

    workload = Workload(
        items=items,
        embedding_dim=dim,
        tokens=tokens.tokens,
        token_dim=tokens.dim,
        token_dtype=_TOKEN_DTYPES[token_bits],
        candidates=candidates,
        words=words,
        queries_per_s=qps,
        p95_ms=p95_ms,
        replicas=replicas,
        generations=keep,
        machine_memory_bytes=machine_memory,
        machine_cores=machine_cores,
        build_machines=build_machines,
        photos_per_s=photos_per_second,
    )
    made = make_plan(workload, read_constants(constants or PACKAGED_CONSTANTS), read_measurements())
    if as_json:
        typer.echo(json.dumps(plan_data(made), indent=2))
        return
    print_table(plan_table(made))
    for note in plan_notes(made):
        typer.echo(note)

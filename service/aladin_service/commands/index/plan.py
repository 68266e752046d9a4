"""``aladin index plan``."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from aladin_service.commands.options import parse_bytes

MEMORY = "64GiB"


class TokenBits(StrEnum):
    """Bits of a token's value, as `aladin index build --tokens` stores it."""

    two = "2"
    four = "4"
    eight = "8"
    sixteen = "16"


def parse_count(text: str) -> int:
    """Read a number of things: ``1e9``, ``2.5e6``, ``1_000_000``, ``5000``.

    Raises:
        BadParameter: it is no whole number above 0.
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
    """Tokens of an item, and the values of each."""

    tokens: int
    dim: int


def parse_shape(text: str) -> TokenShape:
    """Read tokens and the values of each: ``49x128``.

    Raises:
        BadParameter: it has another form.
    """
    found = re.fullmatch(r"([1-9]\d{0,5})x([1-9]\d{0,4})", text.strip())
    if found is None:
        raise typer.BadParameter(f"expected TOKENSxVALUES such as 49x128, got {text!r}")
    return TokenShape(int(found[1]), int(found[2]))


def plan(
    items: Annotated[
        int,
        typer.Option("--items", metavar="N", parser=parse_count, help="Photos, e.g. 1e9."),
    ],
    dim: Annotated[int, typer.Option("--dim", min=1, help="Values of an embedding.")] = 256,
    tokens: Annotated[
        TokenShape,
        typer.Option(
            "--tokens",
            metavar="NxD",
            parser=parse_shape,
            help="Tokens of a photo, and the values of each.",
        ),
    ] = "49x128",  # pyright: ignore[reportArgumentType]
    token_bits: Annotated[
        TokenBits, typer.Option("--token-bits", help="Bits of a token's value.")
    ] = TokenBits.eight,
    qps: Annotated[
        float, typer.Option("--qps", help="Queries a second at the busiest time.")
    ] = 10.0,
    p95_ms: Annotated[
        float, typer.Option("--p95-ms", help="What 95 of 100 queries may take.")
    ] = 100.0,
    candidates: Annotated[
        int, typer.Option("--candidates", min=1, help="Photos that the second stage orders.")
    ] = 100,
    words: Annotated[int, typer.Option("--words", min=1, help="Tokens of a query.")] = 12,
    replicas: Annotated[
        int, typer.Option("--replicas", min=1, help="Copies of everything; 2: one may fail.")
    ] = 2,
    keep: Annotated[int, typer.Option("--keep", min=1, help="Generations on the disk.")] = 2,
    machine_memory: Annotated[
        int,
        typer.Option(
            "--machine-memory", metavar="SIZE", parser=parse_bytes, help="Of one machine."
        ),
    ] = MEMORY,  # pyright: ignore[reportArgumentType]
    machine_cores: Annotated[
        int, typer.Option("--machine-cores", min=1, help="Of one machine.")
    ] = 16,
    photos_per_second: Annotated[
        float | None,
        typer.Option(
            "--photos-per-second",
            help="That a machine encodes. [default: what its cores do of the network that was "
            "measured]",
        ),
    ] = None,
    build_machines: Annotated[
        int,
        typer.Option("--build-machines", min=1, help="That encode, each a part (--part i/n)."),
    ] = 1,
    constants: Annotated[
        Path | None,
        typer.Option(
            "--constants",
            metavar="FILE",
            dir_okay=False,
            help="Measured by `python -m benchmarks.search.constants --out FILE`. "
            "[default: those that came with this installation]",
        ),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON, not tables.")] = False,
) -> None:
    """Say what an index of some size will take, on one machine and in a cluster.

    In: numbers. Out: on stdout, memory, disk, machines, hours of building and the latency to
    expect of an index of files and of one in an engine such as Milvus, computed from costs that
    were measured; docs/PLAN.md has the formulas. It says what was held against real indexes and
    what is extrapolated beyond them. One side is planned: for texts, call it with theirs.
    """
    from aladin_index.plan.constants import PACKAGED_CONSTANTS, read_constants
    from aladin_index.plan.measurements import read_measurements
    from aladin_index.plan.plan import make_plan
    from aladin_index.plan.workload import Workload
    from aladin_index.settings import TokenDtype
    from aladin_service.reports.plan_report import plan_data, plan_notes, plan_table
    from aladin_service.reports.tables import print_table

    forms: dict[TokenBits, TokenDtype] = {
        TokenBits.two: "2bit",
        TokenBits.four: "4bit",
        TokenBits.eight: "int8",
        TokenBits.sixteen: "float16",
    }
    workload = Workload(
        items=items,
        embedding_dim=dim,
        tokens=tokens.tokens,
        token_dim=tokens.dim,
        token_dtype=forms[token_bits],
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

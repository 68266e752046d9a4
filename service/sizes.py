"""Amounts of memory as people write them."""

from __future__ import annotations

import re

import typer

_FACTORS = {"": 1, "B": 1} | {
    f"{prefix}{form}": base**power
    for power, prefix in enumerate("KMGT", start=1)
    for form, base in (("B", 1000), ("iB", 1024))
}


def parse_bytes(text: str) -> int:
    """Read a number of bytes: ``8GiB`` (8 x 1024^3), ``1.5 GB`` (1.5 x 1000^3), ``4096``.

    Raises:
        BadParameter: it is none.
    """
    match = re.fullmatch(r"(\d+(?:\.\d+)?)\s*([A-Za-z]*)", text.strip())
    if match is None or match[2] not in _FACTORS:
        units = ", ".join(unit for unit in _FACTORS if unit)
        raise typer.BadParameter(f"expected a size such as 8GiB, got {text!r} (units: {units})")
    size = int(float(match[1]) * _FACTORS[match[2]])
    if size < 1:
        raise typer.BadParameter(f"expected at least one byte, got {text!r}")
    return size

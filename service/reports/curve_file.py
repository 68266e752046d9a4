"""Writes the curve against the number of candidates to a file: a picture, or its numbers."""

from __future__ import annotations

from pathlib import Path

from aladin.atomic import atomic_file, write_json
from aladin.errors import InputError
from aladin.output_file import check_writable
from index.curve.curve_points import CandidateCurve
from service.reports.curve_plot import curve_figure
from service.reports.evaluation_curve import curve_data

_FORMATS = (".json", ".pdf", ".png", ".svg")
# Of a PNG: 9 inches are as wide as a page of text on a screen.
_DOTS_PER_INCH = 110


def check_curve_file(path: Path) -> None:
    """Refuse a file that `write_curve` could not write.

    Raises:
        InputError: its name ends otherwise, or it cannot be written.
    """
    if path.suffix.lower() not in _FORMATS:
        raise InputError(f"--curve: expected a name with one of {', '.join(_FORMATS)}, got {path}")
    check_writable("--curve", path)


def write_curve(path: Path, curve: CandidateCurve, title: str) -> None:
    """Write the curve in the format that the file's name says.

    Args:
        path: of a picture, or of a .json.
        curve: to be written.
        title: above the picture.

    Raises:
        InputError: another format, or the file cannot be written.
    """
    check_curve_file(path)
    kind = path.suffix.lower()
    try:
        if kind == ".json":
            write_json(path, curve_data(curve))
            return
        figure = curve_figure(curve, title)
        with atomic_file(path) as partial:
            figure.savefig(partial, format=kind.removeprefix("."), dpi=_DOTS_PER_INCH)
    except OSError as error:
        raise InputError(f"--curve: {path} cannot be written ({error.strerror})") from error

"""The detector of the commands that take photos, for networks that read regions."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from aladin.detectors.base import Detector

DETECTOR_HELP = (
    "Finds the regions of photos, for networks that read regions: folder or hub name of an object "
    "detector of the DETR family, windows=CLASSIFIER, or MODULE:NAME=SOURCE of your own; options "
    "follow after commas, as threshold=0.3."
)
DetectorOption = Annotated[
    str | None,
    typer.Option(
        "--detector",
        metavar="D",
        help=f"{DETECTOR_HELP} If omitted, as ALADIN_DETECTOR says.",
        show_default=False,
    ),
]


def opened_detector(detector: str | None, device: str = "cpu") -> Detector | None:
    """Load the detector that --detector, or ALADIN_DETECTOR, names; None: nothing names one.

    Raises:
        ConfigError: there is no such detector, or an option of it is impossible.
        CheckpointError: its weights cannot be loaded.
    """
    if detector is None:
        from service.settings import read_settings

        detector = read_settings().detector
    if detector is None:
        return None
    from aladin.detectors.loading import load_detector

    return load_detector(detector, device)

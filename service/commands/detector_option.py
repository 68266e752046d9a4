"""The detector of the commands that take photos, for networks that read regions."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from aladin.detectors.base import Detector
    from aladin.encoders.base import ImageEncoder

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


def named_detector(detector: str | None) -> str | None:
    """Return the name of the detector that --detector, or ALADIN_DETECTOR, gives."""
    if detector is not None:
        return detector
    from service.settings import read_settings

    return read_settings().detector


def detector_for(
    encoder: ImageEncoder, detector: str | None, device: str = "cpu"
) -> Detector | None:
    """Load the detector of a model that reads regions.

    Args:
        encoder: of the model.
        detector: as --detector gives it; None: as ALADIN_DETECTOR does, which a model that reads
            photos leaves alone.
        device: where to run it.

    Returns:
        None where there is none.

    Raises:
        ConfigError: there is no such detector, an option of it is impossible, or it is not the
            one that the model was trained with.
        CheckpointError: its weights cannot be loaded.
    """
    if detector is None and encoder.reads == "photo":
        return None
    name = named_detector(detector)
    if name is None:
        return None
    from aladin.detectors.loading import load_detector
    from service.image_reader import check_detector

    found = load_detector(name, device)
    check_detector(encoder, found)
    return found

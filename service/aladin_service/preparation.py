"""Creation of an index to serve if none exists yet, from the user's photos or the demo's."""

from __future__ import annotations

import logging
import os
from pathlib import Path

from aladin_index.build.builder import BuildReport, build_index
from aladin_index.format.layout import live_generation
from aladin_index.settings import BuildSettings
from aladin_network.errors import IndexMismatchError, IndexNotReadyError
from aladin_network.types import Progress
from aladin_service.demo import calibrate_demo, draw_demo, train_demo
from aladin_service.intake.sources import image_items, photo_places, text_items
from aladin_training.data import iter_records
from aladin_training.data.records import ignore_skipped
from aladin_training.parallel.threads import torch_threads

_LOG = logging.getLogger(__name__)


def prepare_index(
    out: Path,
    demo: Path,
    progress: Progress,
    *,
    photos: Path | None = None,
    model: Path | None = None,
    scenes: int = 3000,
    device: str = "cpu",
) -> BuildReport | None:
    """Build the first generation of an index, unless there is one.

    May be killed at any moment and run again: what is done is not done twice.

    Args:
        out: Folder of the index.
        demo: Folder for the demo, which is drawn if there are no photos and trained if there is no
            model; if both come from the demo, hits have probabilities.
        progress: Receives all progress.
        photos: Data set, with captions or without; None or an empty folder selects the demo's test
            scenes.
        model: Checkpoint; None or an empty folder selects the demo's network.
        scenes: Number of scenes of the demo.
        device: Device of the network when it encodes the photos.

    Returns:
        Report of the build, or None if the index already has a live generation, which was left
        unchanged.

    Raises:
        DataError: If the photos cannot be used.
        CheckpointError: If the model cannot be loaded.
        IndexWriteError: If the disk is full or cannot be written, or another build is running.
    """
    try:
        _LOG.info("%s: generation %d is live; nothing to do", out, live_generation(out))
        return None
    except IndexNotReadyError:
        _LOG.info("%s: no index yet", out)
    source, split = photos, None
    if source is None or _is_empty(source):
        source, split = draw_demo(demo, scenes, progress), "test"
    if model is None or _is_empty(model):
        if split is None:
            _LOG.warning("no model given: using the demo's network, trained on drawn scenes only")
        with torch_threads(1):  # the demo's network is small
            drawn = draw_demo(demo, scenes, progress)
            model = train_demo(demo, drawn, progress)
            # Those of the demo are calibrated on drawn scenes, so they say nothing about the
            # owner's photos.
            if split is not None:
                calibrate_demo(model, drawn, progress)
    _LOG.info("indexing %s", source)
    try:
        return _build(out, model, source, split, device, progress, resume=True)
    except IndexMismatchError:
        # No generation is live, so this is an interrupted build of other photos or another model.
        _LOG.warning("the photos or the model differ from those of the interrupted build")
        return _build(out, model, source, split, device, progress, resume=False)


def _is_empty(place: Path) -> bool:
    return place.is_dir() and not any(place.iterdir())


def _build(
    out: Path,
    model: Path,
    source: Path,
    split: str | None,
    device: str,
    progress: Progress,
    *,
    resume: bool,
) -> BuildReport:
    records = iter_records(source, split, require_captions=False, on_skip=ignore_skipped)
    captioned = any(record.captions for record in records)
    texts = text_items(source, split, ignore_skipped) if captioned else None
    settings = BuildSettings(readers=os.cpu_count() or 1, device=device, resume=resume)
    places = photo_places(source, None)
    images = image_items(source, split, places=places)
    report = build_index(model, out, images, texts, settings, progress)
    if places.warning is not None:
        _LOG.warning(places.warning)
    return report

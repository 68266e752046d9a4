"""The first index of a new service, of the user's photos or the demo's.

Nothing of PyTorch is imported unless the demo is needed: a model with graphs builds without it.
"""

from __future__ import annotations

import logging
import os
from pathlib import Path

from aladin_index.building.builder import BuildReport, build_index
from aladin_index.format.layout import live_generation
from aladin_index.settings import BuildSettings
from aladin_network.errors import ConfigError, IndexMismatchError, IndexNotReadyError, install_line
from aladin_network.types import Progress
from aladin_service.demo import SCENES
from aladin_service.item_sources import image_items, photo_places, text_items
from aladin_training.data import iter_records
from aladin_training.data.records import ignore_skipped

_LOG = logging.getLogger(__name__)


def prepare_index(
    out: Path,
    demo: Path,
    progress: Progress,
    *,
    photos: Path | None = None,
    model: Path | None = None,
    scenes: int = SCENES,
    device: str = "cpu",
) -> BuildReport | None:
    """Build the first generation of an index, unless there is one.

    May be killed at any moment and run again: what is done is not done twice.
    """
    try:
        _LOG.info("%s: generation %d is live; nothing to do", out, live_generation(out))
        return None
    except IndexNotReadyError:
        _LOG.info("%s: no index yet", out)
    source = None if photos is None or _is_empty(photos) else photos
    checkpoint = None if model is None or _is_empty(model) else model
    split = None if source else "test"
    if source is None or checkpoint is None:
        try:
            from aladin_service.demo.run import make_demo
        except ModuleNotFoundError as error:
            raise ConfigError(
                "expected photos and a model with graphs, got no "
                f"{'photos' if source is None else 'model'}; the demo, which would take their "
                f"place, needs {error.name}, which is not installed here: {install_line('train')}"
            ) from error
        if split is None:
            _LOG.warning("no model given: using the demo's network, trained on drawn scenes only")
        drawn, checkpoint = make_demo(demo, scenes, progress, model=checkpoint, split=split)
        source = source or drawn
    _LOG.info("indexing %s", source)
    try:
        return _build(out, checkpoint, source, split, device, progress, resume=True)
    except IndexMismatchError:
        # No generation is live, so this is an interrupted build of other photos or another model.
        _LOG.warning("the photos or the model differ from those of the interrupted build")
        return _build(out, checkpoint, source, split, device, progress, resume=False)


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
    texts = text_items(source, split, report=False) if captioned else None
    settings = BuildSettings(readers=os.cpu_count() or 1, device=device, resume=resume)
    places = photo_places(source, None)
    images = image_items(source, split, places=places)
    report = build_index(model, out, images, texts, settings, progress)
    if places.warning is not None:
        _LOG.warning(places.warning)
    return report

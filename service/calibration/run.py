"""Fits what a network's scores mean, and stores it with the checkpoint or with an index."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from aladin.calibration.calibration import Calibration, FittedOn, TextLengths
from aladin.calibration.fit import AskedDirection, ReportQueries, fit_calibration
from aladin.calibration.photo_sample import sample_photos
from aladin.calibration.store import write_calibration
from aladin.checkpoint import Checkpoint, load_checkpoint
from aladin.errors import ConfigError
from aladin.fusion import Direction
from aladin.progress import Progress
from index.reader import SearchIndex, open_index
from index.settings import BuildSettings
from index.tuning.calibrate import store_calibration
from service.calibration.among_split import ask_split
from service.calibration.encoded_split import EncodedSplit, encode_split
from service.calibration.in_index import ask_images, ask_texts
from training.data import read_records
from training.data.regions import RegionStore


@dataclass(frozen=True, kw_only=True)
class CalibrateOptions:
    """What is asked for.

    Attributes:
        split: of the data, to fit to; None: all photos.
        report_split: of the data, to report on; None: the photos of `split`, each judged by
            models that were fitted without it.
        prior: share of queries that have a match.
        false_alarms: share of the queries with a match whose answer may say that there is none.
    """

    split: str | None = "val"
    report_split: str | None = None
    prior: float = 0.5
    false_alarms: float = 0.05

    def __post_init__(self) -> None:
        """Refuse impossible values.

        Raises:
            ConfigError: a prior outside of (0, 1), a share outside of [0, 1), or a report on
                the photos that are fitted to.
        """
        if not 0 < self.prior < 1:
            raise ConfigError(f"prior: expected more than 0 and less than 1, got {self.prior}")
        if not 0 <= self.false_alarms < 1:
            raise ConfigError(
                f"false_alarms: expected at least 0 and less than 1, got {self.false_alarms}"
            )
        if self.report_split is not None and self.split in (None, self.report_split):
            raise ConfigError(
                f"report_split: expected another split than is fitted to, got {self.report_split!r}"
            )


class CalibrateReport(NamedTuple):
    """What was fitted, and where it is.

    Attributes:
        calibration: with its figures.
        generation: of the index, now live; None where the checkpoint keeps the calibration.
    """

    calibration: Calibration
    generation: int | None


def calibrate_system(
    checkpoint_folder: Path,
    data: Path,
    options: CalibrateOptions,
    index: Path | None,
    progress: Progress,
    regions: RegionStore | None = None,
) -> CalibrateReport:
    """Ask a data set's queries with and without their right answers, fit, and store.

    Args:
        checkpoint_folder: of the network.
        data: photos with captions.
        options: see there.
        index: whose items are searched, and that keeps the calibration; None: the photos and
            captions of the split are searched, and the checkpoint keeps it.
        progress: told of photos, captions, queries and models.
        regions: of the photos, for a network that reads these.

    Raises:
        AladinError: one of the three cannot be used, they do not belong together, or there are
            too few photos.
    """
    checkpoint = load_checkpoint(checkpoint_folder)
    with contextlib.ExitStack() as stack:
        opened = None
        if index is not None:
            # Opened first: an index of another network is refused before the long work.
            opened = stack.enter_context(open_index(index, checkpoint=checkpoint))
        split = _encoded(checkpoint, data, options.split, progress, regions)
        asked = _ask(checkpoint, split, opened, progress)
        report_on = None
        if options.report_split is not None:
            others = _encoded(checkpoint, data, options.report_split, progress, regions)
            of_others = _ask(checkpoint, others, opened, progress)
            report_on = ReportQueries(options.report_split, of_others)
    fitted_on = FittedOn(
        data=data.name,
        split=options.split,
        photos=len(split.records),
        texts=len(split.caption_ids),
        searched="split" if index is None else "index",
        prior=options.prior,
        text_lengths=TextLengths.of(split.words),
        photo_sample=sample_photos(record.id for record in split.records),
    )
    calibration = fit_calibration(
        asked,
        checkpoint.fusion,
        checkpoint.model_id,
        fitted_on,
        options.false_alarms,
        report_on,
        progress,
    )
    if index is not None:
        return CalibrateReport(calibration, store_calibration(index, calibration))
    write_calibration(checkpoint_folder, calibration)
    return CalibrateReport(calibration, None)


def _encoded(
    checkpoint: Checkpoint,
    data: Path,
    split: str | None,
    progress: Progress,
    regions: RegionStore | None,
) -> EncodedSplit:
    records = read_records(data, split, require_captions=False, require_photos=regions is None)
    return encode_split(checkpoint.model, records, progress, regions)


def _ask(
    checkpoint: Checkpoint, split: EncodedSplit, index: SearchIndex | None, progress: Progress
) -> Mapping[Direction, AskedDirection]:
    """Ask the queries of both directions.

    A side that the index lacks answers nothing; there the split's own items stand in.
    """
    asked: dict[Direction, AskedDirection] = {}
    if index is not None:
        for target in index.manifest.targets:
            number = index.manifest.candidates(target)
            side = index.side(target)
            if target == "images":
                queries = ask_images(side, split, number, progress)
                asked["text_to_image"] = AskedDirection(queries, number)
            else:
                queries = ask_texts(side, split, number, progress)
                asked["image_to_text"] = AskedDirection(queries, number)
    if len(asked) < 2:
        number = BuildSettings().default_candidates
        among = ask_split(checkpoint.model, split, number)
        for direction in ("text_to_image", "image_to_text"):
            if direction not in asked:
                asked[direction] = AskedDirection(among(direction), number)
    return asked

"""Fits probabilities to scores, and stores them with the checkpoint or an index."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np

from aladin_index.generations.published import store_calibration
from aladin_index.generations.reader import SearchIndex, open_index
from aladin_index.settings import BuildSettings
from aladin_network.calibration.calibration import (
    Calibration,
    DataSample,
    FittedOn,
    write_calibration,
)
from aladin_network.calibration.fit import (
    LEAST_PHOTOS,
    AskedDirection,
    AskedQuery,
    ReportQueries,
    fit_calibration,
)
from aladin_network.calibration.fitted_files import correction_id
from aladin_network.checkpoint import load_checkpoint
from aladin_network.checkpoint_files import Checkpoint
from aladin_network.errors import ConfigError, InputError
from aladin_network.model import AladinModel
from aladin_network.scoring.hub_correction import HubCorrection, read_correction
from aladin_network.scoring.hub_correction_fit import TARGET_OF
from aladin_network.types import Direction, Progress, Target
from aladin_service.measure.asked_queries import (
    AskedCollection,
    EncodedSplit,
    ask_split,
    encode_split,
)
from aladin_service.measure.query_texts import (
    RightAnswers,
    TextQueries,
    encode_foreign_queries,
    encode_short_queries,
    right_by_captions,
)
from aladin_training.data import Record
from aladin_training.data.regions import RegionStore
from aladin_training.data.selection import read_split
from aladin_training.evaluation import usable_records


@dataclass(frozen=True, kw_only=True)
class CalibrateOptions:
    """Options of a calibration.

    Attributes:
        split: Split of the data to fit to, or None for all photos.
        report_split: Split of the data to report on, or None for the photos of `split`, each judged
            by models that were fitted without it.
        false_alarms: Share of the queries with a match whose answer may report that there is none.
    """

    split: str | None = "val"
    report_split: str | None = None
    false_alarms: float = 0.05

    def __post_init__(self) -> None:
        if not 0 <= self.false_alarms < 1:
            raise ConfigError(
                f"false_alarms: expected at least 0 and less than 1, got {self.false_alarms}"
            )
        if self.report_split is not None and self.split in (None, self.report_split):
            raise ConfigError(
                "report_split: expected a split other than the fitted one, got "
                f"{self.report_split!r}"
            )


class CalibrateReport(NamedTuple):
    """Result of a calibration, and where it is stored.

    Attributes:
        calibration: Calibration with its quality figures.
        generation: Generation of the index that is now live, or None if the calibration is stored
            with the checkpoint.
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
    right_answers: RightAnswers | None = None,
) -> CalibrateReport:
    """Search with and without the right answers of a data set's queries, fit, and store.

    Short texts search the photos of the split in any case: of the other photos of an index it is
    not known whether they show what the texts say. Without an index, captions search the split,
    too, and the calibration is stored with the checkpoint. Without `right_answers`, a caption is
    right for its own photo, and a short text for those whose captions' own words say as much.
    """
    checkpoint = load_checkpoint(checkpoint_folder)
    source = _Source(checkpoint, data, regions, right_answers, progress)
    with contextlib.ExitStack() as stack:
        opened = None
        if index is not None:
            # Opened first, so that an index of another network is refused before the long work.
            opened = stack.enter_context(open_index(index, checkpoint=checkpoint))
            correction = opened.correction()
        else:
            correction = read_correction(checkpoint_folder, checkpoint.model_id)
        source = source._replace(correction=correction)
        # Both are read before either is encoded, which takes long.
        records = source.records(options.split)
        _check_enough(records, options.split, data)
        reported = [] if options.report_split is None else source.records(options.report_split)
        split = source.encode(records)
        asked, short_texts = source.ask(split, opened)
        report_on = None
        if options.report_split is not None:
            others, _ = source.ask(source.encode(reported), opened)
            report_on = ReportQueries(options.report_split, others)
    fitted_on = FittedOn(
        data=data.name,
        split=options.split,
        photos=len(split.records),
        texts=len(split.caption_ids),
        short_texts=short_texts,
        searched="split" if index is None else "index",
        data_sample=DataSample.of(record.id for record in source.records(None)),
        correction=correction_id(None if correction is None else correction.constants),
    )
    calibration = fit_calibration(
        asked,
        checkpoint.fusion if correction is None else correction.constants.fusion,
        checkpoint.model_id,
        fitted_on,
        options.false_alarms,
        report_on,
    )
    if index is not None:
        return CalibrateReport(calibration, store_calibration(index, calibration))
    write_calibration(checkpoint_folder, calibration)
    return CalibrateReport(calibration, None)


class _Source(NamedTuple):
    """The network, its hubness correction, and the data whose splits it encodes."""

    checkpoint: Checkpoint[AladinModel]
    data: Path
    regions: RegionStore | None
    right_answers: RightAnswers | None
    progress: Progress
    correction: HubCorrection | None = None

    def records(self, split: str | None) -> list[Record]:
        """Read a split, or all photos."""
        return read_split(
            self.data,
            split,
            self.checkpoint.provenance.recipe,
            require_captions=False,
            require_photos=self.regions is None,
        )

    def encode(self, records: list[Record]) -> EncodedSplit:
        """Encode a split."""
        return encode_split(
            self.checkpoint.model,
            usable_records(records, self.progress, self.regions),
            self.progress,
            self.regions,
            self.right_answers,
        )

    def ask(
        self, split: EncodedSplit, index: SearchIndex | None
    ) -> tuple[Mapping[Direction, AskedDirection], int]:
        """Run the queries of both directions.

        A collection that the index lacks answers nothing; there the split's own items stand in.
        Returns the queries by direction, and the number of short texts among them.
        """
        model, right_answers = self.checkpoint.model, self.right_answers or right_by_captions
        few = split.records
        short = encode_short_queries(model, few, right_answers, self.progress)
        foreign = encode_foreign_queries(model, few, right_answers, self.progress)
        captions = split.captions
        to_photos = [each for each in (captions, foreign) if each is not None]
        images = self._collection(split, "text_to_image", index)
        texts = self._collection(split, "image_to_text", index)
        by_text: list[AskedQuery] = []
        for each in to_photos:
            if images is None:
                by_text += self._ask_split(split, each, "text_to_image")
            else:
                by_text += images.ask(each.encoded, each.right, each.groups, self.progress)
        if short is not None:
            by_text += self._ask_split(split, short, "text_to_image")
        if texts is None:
            by_photo = self._ask_split(split, captions, "image_to_text")
        else:
            photos = np.arange(split.images.size)
            by_photo = texts.ask(split.images, captions.right.T, photos, self.progress)
        asked: dict[Direction, AskedDirection] = {
            "text_to_image": AskedDirection(by_text, _candidates(index, "images")),
            "image_to_text": AskedDirection(by_photo, _candidates(index, "texts")),
        }
        return asked, 0 if short is None else short.encoded.size

    def _ask_split(
        self, split: EncodedSplit, texts: TextQueries, direction: Direction
    ) -> list[AskedQuery]:
        number, aligned = BuildSettings().default_candidates, self.checkpoint.alignment_trained
        return ask_split(
            self.checkpoint.model,
            split.images,
            texts,
            direction,
            number,
            self.correction,
            is_aligned=aligned,
        )

    def _collection(
        self, split: EncodedSplit, direction: Direction, index: SearchIndex | None
    ) -> AskedCollection | None:
        """Return the collection that a direction searches, or None without one."""
        target = TARGET_OF[direction]
        if index is None or target not in index.manifest.targets:
            return None
        answers, ids = split.images, [record.id for record in split.records]
        if target == "texts":
            answers, ids = split.captions.encoded, list(split.caption_ids)
        return AskedCollection(
            index.collection(target),
            answers,
            ids,
            index.manifest.candidates(target),
            self.correction,
            is_aligned=self.checkpoint.alignment_trained,
        )


def _candidates(index: SearchIndex | None, target: Target) -> int:
    if index is None or target not in index.manifest.targets:
        return BuildSettings().default_candidates
    return index.manifest.candidates(target)


def _check_enough(records: Sequence[Record], split: str | None, data: Path) -> None:
    found = sum(bool(record.captions) for record in records)
    if found < LEAST_PHOTOS:
        where = f"the split {split!r} of {data}" if split else data
        raise InputError(
            f"calibration: expected at least {LEAST_PHOTOS} photos with captions, found {found} "
            f"in {where}"
        )

"""Fits probabilities to scores, and stores them with the checkpoint or an index."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from aladin_index.generations.published import store_calibration
from aladin_index.generations.reader import SearchIndex, open_index
from aladin_index.settings import BuildSettings
from aladin_network.calibration.calibration import Calibration, write_calibration
from aladin_network.calibration.fit import (
    AskedDirection,
    AskedShortTexts,
    ReportQueries,
    fit_calibration,
)
from aladin_network.calibration.fitted_files import correction_id
from aladin_network.calibration.fitted_on import DataSample, FittedOn, TextLengths, sample_photos
from aladin_network.calibration.logistic_fit import LEAST_PHOTOS
from aladin_network.checkpoint import load_checkpoint
from aladin_network.checkpoint_files import Checkpoint
from aladin_network.errors import ConfigError, InputError
from aladin_network.model import AladinModel
from aladin_network.scoring.correction import HubCorrection, read_correction
from aladin_network.types import Direction, Progress
from aladin_service.measure.calibration_index import ask_images, ask_texts
from aladin_service.measure.calibration_split import (
    EncodedSplit,
    RightAnswers,
    ask_split,
    encode_split,
)
from aladin_service.measure.short_queries import (
    ask_short_queries,
    encode_short_queries,
    right_by_captions,
)
from aladin_service.measure.unmatched_queries import (
    UnmatchedQueries,
    ask_unmatched,
    encode_unmatched_queries,
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
        prior: Share of queries that have a match.
        false_alarms: Share of the queries with a match whose answer may report that there is none.
    """

    split: str | None = "val"
    report_split: str | None = None
    prior: float = 0.5
    false_alarms: float = 0.05

    def __post_init__(self) -> None:
        """Refuse impossible values.

        Raises:
            ConfigError: If a prior is outside of (0, 1), a share is outside of [0, 1), or a report
                is requested on the photos used for the fit.
        """
        if not 0 < self.prior < 1:
            raise ConfigError(f"prior: expected more than 0 and less than 1, got {self.prior}")
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
    not known whether they show what the texts say.

    Args:
        checkpoint_folder: Checkpoint folder of the network.
        data: Photos with captions.
        options: Options; see `CalibrateOptions`.
        index: Index whose items are searched and that stores the calibration, or None to search the
            photos and captions of the split and store it with the checkpoint.
        progress: Receives the progress over photos, captions, queries and models.
        regions: Regions of the photos, for a network that reads regions.
        right_answers: Tells which photos a text is right for. With None, a caption is right for its
            own photo, and a short text for those whose captions' own words say as much.

    Raises:
        AladinError: If one of the three cannot be used, they do not belong together, or there are
            too few photos.
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
        asked = _ask(source, split, opened, source.encode_unmatched(split))
        short_texts = source.ask_short_texts(split)
        report_on = None
        if options.report_split is not None:
            others = source.encode(reported)
            report_on = ReportQueries(
                options.report_split,
                _ask(source, others, opened, source.encode_unmatched(others)),
                source.ask_short_texts(others),
            )
    fitted_on = FittedOn(
        data=data.name,
        split=options.split,
        photos=len(split.records),
        texts=len(split.caption_ids),
        searched="split" if index is None else "index",
        prior=options.prior,
        text_lengths=TextLengths.of(split.words),
        photo_sample=sample_photos(record.id for record in split.records),
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
        progress,
        short_texts,
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

    def encode_unmatched(self, split: EncodedSplit) -> UnmatchedQueries | None:
        """Make and encode texts that no photo of a split matches."""
        right_answers = self.right_answers or right_by_captions
        model = self.checkpoint.model
        return encode_unmatched_queries(model, split.records, right_answers, self.progress)

    def ask_short_texts(self, split: EncodedSplit) -> AskedShortTexts | None:
        """Search the photos of a split for short texts of its captions."""
        model = self.checkpoint.model
        right_answers = self.right_answers or right_by_captions
        queries = encode_short_queries(model, split.records, right_answers, self.progress)
        if queries is None:
            return None
        number = BuildSettings().default_candidates
        return ask_short_queries(model, split.images, queries, number, self.correction)


def _check_enough(records: Sequence[Record], split: str | None, data: Path) -> None:
    found = sum(bool(record.captions) for record in records)
    if found < LEAST_PHOTOS:
        where = f"the split {split!r} of {data}" if split else data
        raise InputError(
            f"calibration: expected at least {LEAST_PHOTOS} photos with captions, found {found} "
            f"in {where}"
        )


def _ask(
    source: _Source,
    split: EncodedSplit,
    index: SearchIndex | None,
    unmatched: UnmatchedQueries | None,
) -> Mapping[Direction, AskedDirection]:
    """Run the queries of both directions.

    A side that the index lacks answers nothing; there the split's own items stand in. Texts that
    nothing matches search photos.
    """
    asked: dict[Direction, AskedDirection] = {}
    if index is not None:
        for target in index.manifest.targets:
            number = index.manifest.candidates(target)
            side = index.side(target)
            if target == "images":
                queries = ask_images(
                    side, split, number, source.progress, source.correction, unmatched
                )
                asked["text_to_image"] = AskedDirection(queries, number)
            else:
                queries = ask_texts(side, split, number, source.progress, source.correction)
                asked["image_to_text"] = AskedDirection(queries, number)
    if len(asked) < 2:
        number = BuildSettings().default_candidates
        model, correction = source.checkpoint.model, source.correction
        among = ask_split(model, split, number, correction)
        for direction in ("text_to_image", "image_to_text"):
            if direction not in asked:
                queries = among(direction)
                if direction == "text_to_image" and unmatched is not None:
                    queries += ask_unmatched(model, split.images, unmatched, number, correction)
                asked[direction] = AskedDirection(queries, number)
    return asked

"""Fits probabilities to scores, and stores them with the checkpoint or an index."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from aladin_index.generations.published import store_calibration
from aladin_index.generations.reader import SearchIndex, open_index
from aladin_index.search.backend import Collection, SecondStageQuery
from aladin_index.settings import BuildSettings
from aladin_network.calibration.calibration import (
    Calibration,
    FittedOn,
    TextLengths,
    sample_photos,
    write_calibration,
)
from aladin_network.calibration.features import CandidateScores
from aladin_network.calibration.fit import AskedDirection, ReportQueries, fit_calibration
from aladin_network.calibration.logistic_fit import AskedQuery, candidates_kept
from aladin_network.checkpoint import Checkpoint, load_checkpoint
from aladin_network.errors import ConfigError
from aladin_network.scoring.scores import Encoding, alignment_scores, matching_scores
from aladin_network.types import Direction, Modality, Progress
from aladin_service.measure.calibration_split import (
    EncodedSplit,
    ask_split,
    asked_query,
    encode_split,
)
from aladin_training.data import read_records
from aladin_training.data.regions import RegionStore


def ask_images(
    side: Collection, split: EncodedSplit, num_candidates: int, progress: Progress
) -> list[AskedQuery]:
    """Search an index's images for the photo of every caption.

    A photo that the index has is found by its id, and what the index stores of it is scored; one
    that it does not have is scored directly, as if it were there.

    Args:
        side: Collection of the images.
        split: Split whose captions are the queries.
        num_candidates: Number of candidates of a search's first stage.
        progress: Progress, advanced caption by caption.
    """
    ids = [record.id for record in split.records]
    direction = _Direction(side, "text", split.images, ids, num_candidates)
    asked: list[AskedQuery] = []
    progress.start(split.texts.size, "captions that ask")
    for text, photo in enumerate(split.photo_of_text.tolist()):
        query = split.texts.rows(slice(text, text + 1))
        asked.append(direction.ask(photo, query, np.array([photo])))
        progress.advance()
    return asked


def ask_texts(
    side: Collection, split: EncodedSplit, num_candidates: int, progress: Progress
) -> list[AskedQuery]:
    """Search an index's texts for the captions of every photo; see `ask_images`.

    Args:
        side: Collection of the texts.
        split: Split whose photos are the queries.
        num_candidates: Number of candidates of a search's first stage.
        progress: Progress, advanced photo by photo.
    """
    direction = _Direction(side, "image", split.texts, split.caption_ids, num_candidates)
    asked: list[AskedQuery] = []
    progress.start(split.images.size, "photos that ask")
    for photo in range(split.images.size):
        query = split.images.rows(slice(photo, photo + 1))
        asked.append(direction.ask(photo, query, np.flatnonzero(split.photo_of_text == photo)))
        progress.advance()
    return asked


class _Direction:
    """Queries of one modality, and the collection of an index that they search."""

    def __init__(
        self,
        side: Collection,
        modality: Modality,
        answers: Encoding,
        ids: Sequence[str],
        num_candidates: int,
    ) -> None:
        """Look up which answers the collection contains.

        Args:
            side: Collection to be searched.
            modality: Modality of the queries.
            answers: The split's own items of the other modality.
            ids: IDs of these items.
            num_candidates: Number of candidates of a search's first stage.
        """
        self._side = side
        self._modality: Modality = modality
        self._answers = answers
        self._num_candidates = num_candidates
        found = side.items.by_ids(ids)
        # (answers,) rows in the index; -1 for answers that it does not contain.
        self._rows = np.array([-1 if item is None else item.row for item in found], dtype=np.int64)

    def ask(self, photo: int, query: Encoding, right: NDArray[np.int64]) -> AskedQuery:
        """Search once.

        Args:
            photo: Number of the photo that is the query, or whose caption is.
            query: One encoded item.
            right: Positions of the right answers among the split's own items.
        """
        count = candidates_kept(self._num_candidates, len(right))
        rows_of_right = self._rows[right]
        stored = self._stored(query, count)
        missing = self._missing(query, right[rows_of_right < 0])
        there = np.concatenate([rows_of_right[rows_of_right >= 0], missing.rows])
        scores = stored.joined(missing)
        return asked_query(photo, scores, np.isin(scores.rows, there), self._num_candidates)

    def _stored(self, query: Encoding, count: int) -> CandidateScores:
        """Score the candidates that the first stage finds in the index."""
        side = self._side
        tokens = query.item_tokens(0)
        second_stage = SecondStageQuery(tokens, self._modality) if side.has_tokens else None
        rows, match, _ = side.order(query.embedding[0].numpy(), count, count, second_stage)
        align = None if second_stage is None else side.align(tokens, self._modality, rows)
        return CandidateScores(rows, match, align, self._words(query, side.lengths(rows)))

    def _missing(self, query: Encoding, places: NDArray[np.int64]) -> CandidateScores:
        """Score answers that the index does not contain; their rows are negative."""
        answers = self._answers.rows(torch.from_numpy(places))
        images, texts = (answers, query) if self._modality == "text" else (query, answers)
        align = alignment_scores(images, texts) if self._side.has_tokens else None
        return CandidateScores(
            rows=-1 - places,
            match=matching_scores(images, texts).numpy().reshape(-1),
            align=None if align is None else align.numpy().reshape(-1),
            words=self._words(query, answers.mask.sum(dim=1).numpy()),
        )

    def _words(self, query: Encoding, lengths: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the number of words of each pair's text, given the token counts of the items."""
        if self._modality == "text":
            return np.full(len(lengths), int(query.mask.sum()))
        # If the index has no tokens of the texts, the number of words is unknown as well.
        return lengths if self._side.has_tokens else np.zeros_like(lengths)


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
) -> CalibrateReport:
    """Search with and without the right answers of a data set's queries, fit, and store.

    Args:
        checkpoint_folder: Checkpoint folder of the network.
        data: Photos with captions.
        options: Options; see `CalibrateOptions`.
        index: Index whose items are searched and that stores the calibration, or None to search the
            photos and captions of the split and store it with the checkpoint.
        progress: Receives the progress over photos, captions, queries and models.
        regions: Regions of the photos, for a network that reads regions.

    Raises:
        AladinError: If one of the three cannot be used, they do not belong together, or there are
            too few photos.
    """
    checkpoint = load_checkpoint(checkpoint_folder)
    with contextlib.ExitStack() as stack:
        opened = None
        if index is not None:
            # Opened first, so that an index of another network is refused before the long work.
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
    """Run the queries of both directions.

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

"""Hubness correction of a checkpoint: a bank of training photos and captions, and its constants."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch

from aladin_network.checkpoint_files import Checkpoint
from aladin_network.errors import InputError
from aladin_network.model import AladinModel
from aladin_network.scoring.hub_correction import CorrectionConstants, EncodedItems, HubCorrection
from aladin_network.scoring.hub_correction_fit import ScoredSplit, fit_correction
from aladin_network.scoring.scores import EncodedBatch
from aladin_training.data import Record
from aladin_training.data.selection import (
    SELECTION,
    SelectionSplit,
    read_split,
    selection_of,
)

# Photos of a bank, and captions of each. The time to correct a photo is in proportion to the
# captions: 3 ms for 2,000 of them and 17 regions, a tenth of what it takes to encode the photo.
_PHOTOS, _CAPTIONS = 1000, 2
# Share of the training photos that the constants are chosen on, if the recipe kept none apart.
_SHARE = 0.125
# Fewer say nothing.
_LEAST = 20

# Encodes photos and their captions, in the order of the photos.
EncodeRecords = Callable[[Sequence[Record]], tuple[EncodedBatch, EncodedBatch]]


class CorrectionRecords(NamedTuple):
    """Training photos of a correction: a bank, and others that the constants are chosen on.

    `selection` names the latter: "selection" if the recipe kept them apart, otherwise the split.
    """

    bank: list[Record]
    chosen_on: list[Record]
    selection: str


def correction_records(
    source: Path, split: str | None, recipe: str, *, require_photos: bool = True
) -> CorrectionRecords:
    """Divide training photos with captions into a bank and photos to choose the constants on.

    Raises:
        InputError: If either would have fewer than 20 photos.
        DataError: If the data set cannot be used.
    """
    kept_apart = selection_of(recipe)
    division = kept_apart or SelectionSplit(split, _SHARE)
    records = read_split(
        source, division.train_split, recipe, require_captions=False, require_photos=require_photos
    )
    bank, chosen_on = division.divide(record for record in records if record.captions)
    if min(len(bank), len(chosen_on)) < _LEAST:
        raise InputError(
            f"{source}: expected at least {_LEAST} training photos with captions for the bank, and "
            f"as many to choose the constants on, got {len(bank)} and {len(chosen_on)}"
        )
    drawn = np.random.default_rng(0).permutation(len(bank))[:_PHOTOS]
    some = [bank[place] for place in np.sort(drawn).tolist()]
    bank = [replace(each, captions=each.captions[:_CAPTIONS], text_ids=()) for each in some]
    name = SELECTION if kept_apart else f"{division.train_split or 'all'}, trained on as well"
    return CorrectionRecords(bank, chosen_on, name)


class FittedCorrection(NamedTuple):
    """A correction with the split that its constants were chosen on."""

    correction: HubCorrection
    split: ScoredSplit


def fit_to_records(
    checkpoint: Checkpoint[AladinModel],
    data: Path,
    records: CorrectionRecords,
    encode: EncodeRecords,
) -> FittedCorrection:
    """Encode the photos and captions, and fit the correction of a checkpoint.

    Args:
        checkpoint: The checkpoint.
        data: Data set, whose name is stored.
        records: Photos of the bank, and those that the constants are chosen on.
        encode: Encodes them.

    Raises:
        InputError: If its alignment was not trained.
    """
    if not checkpoint.alignment_trained:
        raise InputError(
            "expected a network whose alignment was trained: its scores are corrected, too"
        )
    images, texts = (EncodedItems.of(each.arrays()) for each in encode(records.bank))
    asked_images, asked_texts = encode(records.chosen_on)
    counts = torch.tensor([len(record.captions) for record in records.chosen_on])
    split = ScoredSplit.of(
        EncodedItems.of(asked_images.arrays()),
        EncodedItems.of(asked_texts.arrays()),
        torch.repeat_interleave(torch.arange(len(counts)), counts),
    )
    constants = CorrectionConstants(
        model_id=checkpoint.model_id,
        data=data.name,
        selection=records.selection,
        fusion=checkpoint.fusion,
    )
    return FittedCorrection(fit_correction(constants, images, texts, split), split)

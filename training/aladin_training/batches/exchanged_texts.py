"""Captions with one word exchanged: hard negatives of the photos whose captions they nearly are."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import NamedTuple

import torch

from aladin_training.batches.batch import ExchangedBatch
from aladin_training.batches.network_inputs import TextInputs
from aladin_training.data.exchanges import exchange_word
from aladin_training.data.records import Record
from aladin_training.parallel.distributed import BatchShare

# Exchanged captions drawn for a caption, equal ones included. An epoch shows one of them at most,
# and frozen encoders cache the features of each.
_VERSIONS = 3


class ExchangedDraw(NamedTuple):
    """Exchanged captions of a batch, one for each photo.

    Attributes:
        texts: B rows of texts. A photo that has none gets its own caption, to keep the number.
        captions: Column of the caption that each of them was made from, among the batch's.
        is_exchanged: Whether the photo has one.
    """

    texts: list[int]
    captions: list[int]
    is_exchanged: list[bool]

    def of(self, share: BatchShare) -> ExchangedDraw:
        """Return those of one process's photos; the columns remain those of the whole batch."""
        own = share.photos(len(self.texts))
        return ExchangedDraw(self.texts[own], self.captions[own], self.is_exchanged[own])

    def gather(self, inputs: TextInputs) -> ExchangedBatch:
        """Gather the texts for a network."""
        return ExchangedBatch(
            texts=inputs.get(self.texts),
            captions=torch.tensor(self.captions),
            is_exchanged=torch.tensor(self.is_exchanged),
        )


class ExchangedTexts:
    """Further rows of a data set's texts: captions with one word exchanged.

    Attributes:
        texts: The texts without repetition.
    """

    def __init__(self, records: Sequence[Record], first: int) -> None:
        """Draw the texts, always the same ones for the same captions.

        Args:
            records: Photos with captions.
            first: Row of the first text, behind those of the captions and of other texts.
        """
        rows: dict[str, int] = {}
        self._rows_of_caption: list[list[int]] = []
        for record in records:
            for caption in record.captions:
                generator = random.Random(caption)
                drawn = [
                    exchange_word(caption, record.captions, generator, relations=True)
                    for _ in range(_VERSIONS)
                ]
                self._rows_of_caption.append(
                    [rows.setdefault(text, first + len(rows)) for text in drawn if text]
                )
        self.texts = list(rows)

    def draw(
        self, captions: Sequence[int], per_photo: int, generator: random.Random
    ) -> ExchangedDraw:
        """Draw one text for each photo of a batch, of the first caption that has any.

        Args:
            captions: Rows of the batch's texts; those beyond the captions have none.
            per_photo: Texts of each photo.
            generator: Source of all choices.
        """
        draw = ExchangedDraw([], [], [])
        for start in range(0, len(captions), per_photo):
            versions = [
                (column, self._rows_of_caption[captions[column]])
                for column in range(start, start + per_photo)
                if captions[column] < len(self._rows_of_caption)
            ]
            column, rows = next((each for each in versions if each[1]), (start, []))
            draw.texts.append(generator.choice(rows) if rows else captions[column])
            draw.captions.append(column)
            draw.is_exchanged.append(bool(rows))
        return draw

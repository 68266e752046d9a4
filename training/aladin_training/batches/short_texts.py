"""Shorter texts that stand in for captions in training, and the photos that they hold for."""

from __future__ import annotations

import random
from collections.abc import Sequence

import torch
from jaxtyping import Bool
from torch import Tensor

from aladin_training.data.phrases import Wording, draw_short_text, meanings_of
from aladin_training.data.records import Record

# Shorter texts drawn for a caption, equal ones included. An epoch shows one of them at most, and
# frozen encoders cache the features of each.
_VERSIONS = 4


class ShortTexts:
    """Further rows of a data set's texts: shorter texts that follow from its captions.

    A query of two words describes many photos. In a batch, such a text is therefore no negative of
    a photo whose own captions say as much, see `Wording.holds`.

    Attributes:
        texts: The texts without repetition; their rows follow those of the captions.
    """

    def __init__(self, records: Sequence[Record]) -> None:
        """Draw the texts, always the same ones for the same captions."""
        captions = [caption for record in records for caption in record.captions]
        self._first = len(captions)
        rows: dict[str, int] = {}
        self._rows_of_caption: list[list[int]] = []
        for caption in captions:
            generator = random.Random(caption)
            drawn = [draw_short_text(caption, generator) for _ in range(_VERSIONS)]
            self._rows_of_caption.append(
                [rows.setdefault(text, self._first + len(rows)) for text in drawn if text]
            )
        self.texts = list(rows)
        self._meanings = [meanings_of(text) for text in self.texts]
        self._wordings = [Wording(record.captions) for record in records]

    def replace(self, captions: Sequence[int], share: float, generator: random.Random) -> list[int]:
        """Replace a share of the captions, 0 to 1, by shorter texts of their own."""
        shown: list[int] = []
        for caption in captions:
            versions = self._rows_of_caption[caption]
            is_replaced = generator.random() < share
            shown.append(generator.choice(versions) if is_replaced and versions else caption)
        return shown

    def holding(self, photos: Sequence[int], texts: Sequence[int]) -> Bool[Tensor, "photos texts"]:
        """Mark the pairs whose shorter text follows from a caption of the photo.

        Captions, which may be among the texts, are never marked.
        """
        marked = torch.zeros(len(photos), len(texts), dtype=torch.bool)
        for place, text in enumerate(texts):
            if text >= self._first:
                meanings = self._meanings[text - self._first]
                marked[:, place] = torch.tensor(
                    [self._wordings[photo].holds(meanings) for photo in photos]
                )
        return marked

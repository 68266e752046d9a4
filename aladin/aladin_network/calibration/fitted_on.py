"""What a calibration was fitted on: the data, the lengths of its texts, and its photos.

Photos are recorded by samples of hashed ids, by which those of an index are recognised.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

# Number of photos whose hashes are kept; the share in a sample is within 0.1 of the share of all
# photos.
SAMPLE_SIZE = 256
# Number of hashes kept of a whole data set. Of an index of a few photos of a large data set, enough
# are among them to recognise it: of 1,000 photos of 100,000, ten.
DATA_SAMPLE_SIZE = 1024
_DIGITS = 16


@dataclass(frozen=True, kw_only=True)
class TextLengths:
    """Range of text lengths in words, as the text encoder counts them (tokens).

    Attributes:
        low: Shortest length in the range.
        high: Longest length in the range.
    """

    low: int
    high: int

    @classmethod
    def of(cls, words: NDArray[np.int64]) -> TextLengths:
        """Return the range between the 1 % and the 99 % quantile.

        Quantiles, because one caption of a single word among thousands would extend the range of
        the minimum to lengths for which the fit has next to no data.

        Args:
            words: (texts,) lengths, at least one.
        """
        low, high = np.quantile(words, [0.01, 0.99], method="inverted_cdf")
        return cls(low=int(low), high=int(high))

    def __contains__(self, words: int | float) -> bool:
        """Tell whether a length is in the range."""
        return self.low <= words <= self.high


@dataclass(frozen=True, kw_only=True)
class DataSample:
    """The photos of a data set with the smallest hashes, by which its photos are recognised.

    Attributes:
        photos: Number of photos of the data set, in all splits.
        hashes: Hashed ids, ascending, see `sample_photos`.
    """

    photos: int
    hashes: list[str]

    @classmethod
    def of(cls, photo_ids: Iterable[str]) -> DataSample:
        """Sample a data set by the unique ids of all its photos."""
        ids = list(photo_ids)
        return cls(photos=len(ids), hashes=sample_photos(ids, DATA_SAMPLE_SIZE))

    @property
    def limit(self) -> str:
        """Largest hash of which it is known whether the data set has it."""
        return self.hashes[-1] if self.photos > len(self.hashes) else "g"  # above all digits


@dataclass(frozen=True, kw_only=True)
class FittedOn:
    """What a calibration was fitted on.

    Attributes:
        data: Name of the data set's file or folder.
        split: Split of the data, or None for all of it.
        photos: Number of photos used as queries, those with a caption.
        texts: Number of texts used as queries, the captions of these photos.
        searched: "split": its own photos and captions were searched; "index": an index's items.
        prior: Assumed share of queries that have a match.
        text_lengths: Range of the lengths of the texts, or None in calibrations that were stored
            before it was recorded.
        photo_sample: Hashed ids of some of the photos, see `sample_photos`; None in the same cases
            as `text_lengths`.
        data_sample: Photos of the whole data set, or None in calibrations of older versions.
        correction: Hubness correction of the scores, see
            `aladin_network.calibration.fitted_files.correction_id`; None in calibrations of older
            versions.
    """

    data: str
    split: str | None
    photos: int
    texts: int
    searched: Literal["split", "index"]
    prior: float
    text_lengths: TextLengths | None = None
    photo_sample: list[str] | None = None
    data_sample: DataSample | None = None
    correction: str | None = None


def hash_photo(photo_id: str) -> str:
    """Return the first 64 bits of an id's sha256, as hexadecimal digits."""
    return hashlib.sha256(photo_id.encode("utf-8", "surrogatepass")).hexdigest()[:_DIGITS]


def sample_photos(photo_ids: Iterable[str], size: int = SAMPLE_SIZE) -> list[str]:
    """Sample photos by the smallest hashes of their ids.

    The sample depends on the ids alone, not on their order. Hashes are kept in place of ids,
    which may be file names, because a calibration travels with its checkpoint.

    Args:
        photo_ids: Unique ids of all photos.
        size: Number of hashes to keep.

    Returns:
        At most `size` hashes, ascending.
    """
    return sorted(hash_photo(photo_id) for photo_id in photo_ids)[:size]

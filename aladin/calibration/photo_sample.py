"""Which photos a calibration was fitted on, as a small sample of hashed ids."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable

# Photos whose hashes are kept; the share of a sample is within .1 of the share of all photos.
SAMPLE_SIZE = 256
_DIGITS = 16


def hash_photo(photo_id: str) -> str:
    """Return the first 64 bits of an id's sha256, as hexadecimal digits."""
    return hashlib.sha256(photo_id.encode("utf-8", "surrogatepass")).hexdigest()[:_DIGITS]


def sample_photos(photo_ids: Iterable[str]) -> list[str]:
    """Sample photos by the smallest hashes of their ids.

    The sample depends on the ids alone, not on their order. Hashes are kept in place of ids,
    which may be file names, because a calibration travels with its checkpoint.

    Args:
        photo_ids: unique ids of all photos.

    Returns:
        At most `SAMPLE_SIZE` hashes, ascending.
    """
    return sorted(hash_photo(photo_id) for photo_id in photo_ids)[:SAMPLE_SIZE]

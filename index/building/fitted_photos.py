"""How many of the photos that a calibration was fitted on are among those that are indexed."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

from aladin.calibration.calibration import Calibration
from aladin.calibration.photo_sample import hash_photo
from index.settings import Target

if TYPE_CHECKING:
    from index.building.generation_writer import SideSource
    from index.building.side_writer import EncodedPart


class FittedPhotos:
    """Counts the sampled photos of a calibration while a generation's images are written."""

    def __init__(self, calibration: Calibration | None) -> None:
        """Count nothing yet.

        Args:
            calibration: the generation's calibration, if it has one.
        """
        sample = None if calibration is None else calibration.fitted_on.photo_sample
        self._sample = frozenset(sample or ())
        self._found = 0
        self._watched = False

    def watch(self, sides: Mapping[Target, SideSource]) -> Mapping[Target, SideSource]:
        """Return the same sides; the images are counted as they are read."""
        if "images" not in sides or not self._sample:
            return sides
        self._watched = True
        images = sides["images"]
        return {**sides, "images": replace(images, parts=self._counted(images.parts))}

    @property
    def share(self) -> float | None:
        """Share of the sample that was read; None if there was nothing to compare."""
        return self._found / len(self._sample) if self._watched else None

    def _counted(self, parts: Iterable[EncodedPart]) -> Iterator[EncodedPart]:
        for part in parts:
            self._found += sum(hash_photo(item.id) in self._sample for item in part.items)
            yield part

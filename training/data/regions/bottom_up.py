"""The table of bottom-up attention (Anderson et al., CVPR 2018), one photo a line.

``image_id  image_w  image_h  num_boxes  boxes  features``; boxes in pixels and features are
base64 of float32.
"""

from __future__ import annotations

from training.data.fields import Place
from training.data.regions.numbers import decode_floats, parse_count
from training.data.regions.store import RawRegions

COLUMNS = ("image_id", "image_w", "image_h", "num_boxes", "boxes", "features")


def parse_bottom_up(cells: list[bytes], place: Place) -> RawRegions:
    """Take a line apart.

    Args:
        cells: of `COLUMNS`.
        place: of the line, for errors.

    Raises:
        DataError: a cell is not what its column holds.
    """
    width, height, regions = (
        parse_count(cell, name, place) for name, cell in zip(COLUMNS[1:4], cells[1:4], strict=True)
    )
    return RawRegions(
        place=place,
        vectors=decode_floats(cells[5], regions, "features", place),
        boxes=decode_floats(cells[4], regions, "boxes", place),
        size_px=(width, height),
    )

"""What a query may cost, whichever front door it comes through."""

from __future__ import annotations

from dataclasses import dataclass

from aladin.images import DEFAULT_LIMITS, ImageLimits


@dataclass(frozen=True, kw_only=True)
class QueryLimits:
    """What a query may cost.

    Attributes:
        image: bytes and pixels of an uploaded photo.
        max_text_chars: of a text; the network's own limit in tokens comes on top.
    """

    image: ImageLimits = DEFAULT_LIMITS
    max_text_chars: int = 2000

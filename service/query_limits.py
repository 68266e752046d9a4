"""What a query or a new item may cost, whichever front door it comes through."""

from __future__ import annotations

from dataclasses import dataclass, field

from aladin.decoding_memory import DecodingMemory
from aladin.images import DEFAULT_LIMITS, ImageLimits
from aladin.regions.npz import RegionLimits
from index.items.metadata_limits import MetadataLimits


@dataclass(frozen=True, kw_only=True)
class QueryLimits:
    """What a query or a new item may cost.

    Attributes:
        image: bytes and pixels of an uploaded photo.
        regions: bytes and number of a photo's uploaded regions.
        metadata: bytes, fields and depth of a new item's metadata.
        max_text_chars: of a text; the network's own limit in tokens comes on top.
        memory: Shared by all photos that are decoded at the same time under these limits.
    """

    image: ImageLimits = DEFAULT_LIMITS
    regions: RegionLimits = field(default_factory=RegionLimits)
    metadata: MetadataLimits = field(default_factory=MetadataLimits)
    max_text_chars: int = 2000
    memory: DecodingMemory = field(default_factory=DecodingMemory, compare=False)

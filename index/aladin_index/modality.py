"""Texts and images: which side of an index holds them, and which way a search goes from them."""

from __future__ import annotations

from typing import Literal

from aladin_index.settings import Target
from aladin_network.scoring.fusion import Direction

Modality = Literal["text", "image"]

MODALITY_OF: dict[Target, Modality] = {"images": "image", "texts": "text"}
TARGET_OF: dict[Modality, Target] = {"text": "texts", "image": "images"}
# Where the second stage has words and regions to align.
OTHER_TARGET_OF: dict[Modality, Target] = {"text": "images", "image": "texts"}
DIRECTION_OF: dict[Modality, Direction] = {"text": "text_to_image", "image": "image_to_text"}

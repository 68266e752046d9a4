"""Defaults that recipes and the command line share; importing them does not import torch."""

from __future__ import annotations

from typing import NamedTuple

from aladin_network.types import ScoreName

# Folder for the cached outputs of frozen encoders.
FEATURE_CACHE = "~/.cache/aladin-search/features"

# Lengths of AOQ's lists; their ratio is that of captions to photos in COCO and Flickr.
NUM_TEXTS = 300
NUM_IMAGES = 60


class Lists(NamedTuple):
    """What is listed of hard negatives: by which score, how many captions and photos of each."""

    score: ScoreName = "matching"
    num_texts: int = NUM_TEXTS
    num_images: int = NUM_IMAGES

"""Defaults that recipes and the command line share; importing them does not import torch."""

from __future__ import annotations

# Folder for the cached outputs of frozen encoders.
FEATURE_CACHE = "~/.cache/aladin-search/features"

# Lengths of AOQ's lists; their ratio is that of captions to photos in COCO and Flickr.
NUM_TEXTS = 300
NUM_IMAGES = 60

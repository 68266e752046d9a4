"""Settings that recipes and the command line share; importing them needs no torch."""

from __future__ import annotations

# Folder for the outputs of frozen encoders.
FEATURE_CACHE = "~/.cache/aladin-search/features"

# Lengths of AOQ's lists; their ratio is COCO's and Flickr's five captions a photo.
NUM_TEXTS = 300
NUM_IMAGES = 60

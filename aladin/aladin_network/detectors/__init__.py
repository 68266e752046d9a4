"""Detectors: from a photo to its regions, where a network reads regions and not photos."""

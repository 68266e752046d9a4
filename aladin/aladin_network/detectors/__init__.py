"""Detectors: they find the regions of a photo, for networks that read regions."""

"""Regions of a photo as a detector found them: vectors, boxes and labels."""

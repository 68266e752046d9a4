"""Synchronises the images of a live index with folders of photos."""

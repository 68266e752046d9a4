"""Checkpoints as folders for other programs: sentence-transformers, and a hub."""

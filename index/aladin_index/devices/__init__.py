"""Searching on a CUDA card."""

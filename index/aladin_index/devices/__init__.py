"""Searches on CUDA devices."""

"""Additions to and deletions from the live generation, stored beside it."""

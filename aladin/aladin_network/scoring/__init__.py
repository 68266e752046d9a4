"""Alignment scores, fusion, masks and the separation of scores."""

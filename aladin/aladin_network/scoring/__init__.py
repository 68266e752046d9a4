"""Scores of pairs, their fusion, and the metrics of retrieval."""

"""Encoding a corpus on the nodes of a Ray cluster that exists."""

"""Encoding of a corpus on the nodes of an existing Ray cluster."""

"""Encoding of items and photos as embeddings and tokens."""

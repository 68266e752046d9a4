"""Indexes stored in a vector database: what all supported databases have in common."""

"""Indexes kept by an engine, a vector database: what all engines have in common."""

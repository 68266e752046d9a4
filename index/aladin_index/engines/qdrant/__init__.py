"""Qdrant as the engine of an index: a server, its client's local mode, and Qdrant Edge."""

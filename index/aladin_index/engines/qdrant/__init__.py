"""Qdrant as an engine: a server, the local mode of its client, and Qdrant Edge."""

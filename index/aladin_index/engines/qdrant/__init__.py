"""Qdrant as a vector database: a server, the local mode of its client, and Qdrant Edge."""

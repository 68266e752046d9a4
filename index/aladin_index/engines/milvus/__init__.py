"""Milvus as an engine: a cluster, or its standalone server."""

"""Milvus as the engine of an index: a cluster, or its standalone server."""

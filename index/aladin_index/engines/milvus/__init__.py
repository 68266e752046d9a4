"""Milvus as a vector database: a cluster, or its standalone server."""

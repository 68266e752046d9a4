"""Ids, texts and metadata of items: SQLite, and filters on metadata."""

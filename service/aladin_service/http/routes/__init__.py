"""The routes, one resource per file."""

"""Builds of a new generation: planning, resuming, encoding in shards."""

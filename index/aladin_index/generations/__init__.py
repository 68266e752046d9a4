"""Generations of an index: opened, merged, compacted, verified and described."""

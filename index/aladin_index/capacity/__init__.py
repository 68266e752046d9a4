"""Capacity planning: memory, disk, machines, build time and latency of an index."""

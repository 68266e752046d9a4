"""Delivery of an index's photos to clients."""

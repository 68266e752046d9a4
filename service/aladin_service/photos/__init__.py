"""Delivery of an index's photos to clients, and photos by URL."""

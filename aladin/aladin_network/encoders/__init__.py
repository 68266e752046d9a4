"""Encoders of photos, regions and texts, and what prepares their inputs."""

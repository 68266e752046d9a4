"""Drawings of the evidence for a score: a photo with regions, and a text with scores."""

"""Pictures of the evidence for a score: a photo with regions, and its text with numbers."""

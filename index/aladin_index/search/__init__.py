"""Two-stage search: candidates, re-ranking, probabilities and results."""

"""Another model for a live index: its items are encoded again beside the live generation."""

"""Creation of a generation: builds, merges, and their common writer."""

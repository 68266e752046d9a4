"""How a generation comes to be: builds, merges, and the writer they share."""

"""Photos of the index on their way to a client."""

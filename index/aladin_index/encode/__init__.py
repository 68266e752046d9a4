"""Items and photos turned into embeddings and tokens."""

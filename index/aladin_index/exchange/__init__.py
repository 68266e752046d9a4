"""Import and export of precomputed encodings, in the folder layout of clip-retrieval."""

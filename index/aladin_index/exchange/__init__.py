"""Ready-made encodings in and out, in the folder layout of clip-retrieval."""

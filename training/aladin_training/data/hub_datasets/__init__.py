"""Data sets of Hugging Face's `datasets`: saved folders, and names on the hub, read in place."""

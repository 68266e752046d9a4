"""Second stage's scores computed in C, and their Python binding."""

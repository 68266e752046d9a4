"""Demo data set: drawn scenes whose captions match only if each word fits its object."""

"""The second stage's sums in C, and what calls them from Python."""

"""The second stage's tokens: storage formats and files."""

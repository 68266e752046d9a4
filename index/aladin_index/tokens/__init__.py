"""The second stage's tokens: their stored forms, and where they lie."""

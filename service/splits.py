"""What ``--split`` of the command line means."""

from __future__ import annotations

ALL_SPLITS = "all"
SPLIT_HELP = f"Split of DATA; {ALL_SPLITS!r} takes every photo."


def chosen_split(word: str) -> str | None:
    """Return the split that the readers take; None: every photo."""
    return None if word == ALL_SPLITS else word

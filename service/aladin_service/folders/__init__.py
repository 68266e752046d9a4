"""Folders of photos that an index follows: passes over them, and watching."""

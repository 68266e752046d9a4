"""Additions to and deletions from a generation; compaction and rollback."""

"""What the user said of each item: SQLite, and filters on metadata."""

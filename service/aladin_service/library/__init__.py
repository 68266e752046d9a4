"""Photo libraries of this user: models by name, indexes that follow folders of photos."""

"""Photos that the service fetches itself, from listed hosts only."""

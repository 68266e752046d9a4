"""What the service answers, as JSON and as text."""

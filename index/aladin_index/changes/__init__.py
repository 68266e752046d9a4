"""What is added to a generation and removed from it, and the way to the next one and back."""

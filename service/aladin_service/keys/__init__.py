"""API keys, and the file of them."""

"""API keys and the file that stores them."""

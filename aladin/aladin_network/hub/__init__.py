"""The model hub: what its library says."""

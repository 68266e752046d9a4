"""Sources of pretrained models: bounds of a folder's files, and what the hub's library says."""

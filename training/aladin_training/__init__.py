"""Offline jobs: data, losses, tasks, the loop, recipes and the demo data."""

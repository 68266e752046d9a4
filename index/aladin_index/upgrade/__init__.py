"""Upgrades of a live index to another model: both answer until all items are encoded again."""

"""Runs: a recipe's stages, from their networks to their checkpoints."""

"""Heads: tokens for late interaction, one embedding per item, and attention."""

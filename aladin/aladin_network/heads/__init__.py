"""The two heads: tokens for late interaction, and one embedding."""

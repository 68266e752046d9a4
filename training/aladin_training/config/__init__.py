"""Recipes and the settings of their stages."""

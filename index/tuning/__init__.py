"""Choosing by measurement what a search costs and keeps."""

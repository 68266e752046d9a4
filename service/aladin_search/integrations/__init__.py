"""Adapters for other people's libraries; each module is imported only where it is used."""

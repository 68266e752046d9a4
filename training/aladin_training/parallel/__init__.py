"""Processes, threads, number formats and random numbers."""

"""Asks a data set's queries, fits what their scores mean, and stores it."""

"""Queries for evaluation, calibration and tuning, taken from training data sets."""

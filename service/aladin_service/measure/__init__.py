"""Evaluation, calibration and tuning queries with the data sets of training."""

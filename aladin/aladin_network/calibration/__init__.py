"""Calibration: probabilities that a hit is right, and that a query has any match.

Applying a calibration requires NumPy only; fitting one (`aladin_network.calibration.fit`) also
requires scikit-learn.
"""

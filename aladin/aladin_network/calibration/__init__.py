"""What the scores of a search mean: probabilities that a pair, or a whole answer, is right.

Applying a calibration takes NumPy alone; fitting one (`aladin_network.calibration.fit`)
scikit-learn.
"""

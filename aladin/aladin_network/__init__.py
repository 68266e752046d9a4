"""The network of ALADIN: encoders, heads, scoring, calibration, photos, checkpoints and errors.

Import from submodules, e.g. ``from aladin_network.model import AladinModel``.
"""

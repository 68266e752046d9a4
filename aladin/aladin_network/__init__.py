"""The network: encoders, heads, scoring, metrics, preprocessing, checkpoints, errors.

Import from submodules, e.g. ``from aladin_network.model import AladinModel``.
"""

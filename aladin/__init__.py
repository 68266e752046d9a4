"""The network: encoders, heads, scoring, metrics, preprocessing, checkpoints, errors.

Import from submodules, e.g. ``from aladin.model import AladinModel``.
"""

"""Measurements of an index: tuning, quality against the number of candidates, evaluation."""

from __future__ import annotations

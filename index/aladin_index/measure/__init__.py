"""Choosing by measurement what a search costs and keeps.

Quality and time of the two stages against the number of candidates.
"""

from __future__ import annotations

"""What the second stage takes: packing tokens, and scoring candidates by them."""

from __future__ import annotations

import math

from index.plan.constants import FormConstants
from index.plan.workload import Workload

# The kernel compares with so many words at a time; fewer take as long (`index/kernel`).
_WORDS_AT_A_TIME = 16


def align_s(workload: Workload, form: FormConstants) -> float:
    """Return the seconds to score the candidates, all of their pages being in memory.

    Every word meets every token of every candidate.
    """
    values = workload.candidates * workload.tokens * workload.token_dim
    words = _WORDS_AT_A_TIME * math.ceil(workload.words / _WORDS_AT_A_TIME)
    return values * (form.value_s + form.score_s * words)


def pack_s(workload: Workload, form: FormConstants) -> float:
    """Return the seconds to bring all tokens into their stored form."""
    return form.pack_s * workload.items * workload.tokens * workload.token_dim

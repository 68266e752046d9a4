"""What the second stage takes: packing tokens, and scoring candidates by them."""

from __future__ import annotations

from index.plan.constants import FormConstants
from index.plan.workload import Workload


def align_s(workload: Workload, form: FormConstants) -> float:
    """Return the seconds to score the candidates, all of their pages being in memory.

    Every word meets every token of every candidate.
    """
    values = workload.candidates * workload.tokens * workload.token_dim
    return values * (form.value_s + form.score_s * workload.words)


def pack_s(workload: Workload, form: FormConstants) -> float:
    """Return the seconds to bring all tokens into their stored form."""
    return form.pack_s * workload.items * workload.tokens * workload.token_dim

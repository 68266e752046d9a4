"""The processor of this machine, and others that tests pretend to run on."""

from __future__ import annotations

import pytest

from aladin_network import inference

# On processors that do not, OpenVINO computes in float32 what it is asked to compute in bfloat16.
MULTIPLIES_BFLOAT16 = inference.multiplies_bfloat16()


def pretend_bfloat16(monkeypatch: pytest.MonkeyPatch, *, multiplied: bool = True) -> None:
    """Let the processor seem to have instructions that multiply bfloat16, or to have none."""
    flags = ["fpu", "avx512_bf16"] if multiplied else ["fpu"]
    monkeypatch.setattr(inference, "processor_flags", lambda: flags)

"""Tests that start a real Milvus server."""

from __future__ import annotations

from importlib.util import find_spec

import pytest

HAS_MILVUS = find_spec("milvus") is not None and find_spec("pymilvus") is not None
WITHOUT_MILVUS = "needs the packages milvus and pymilvus"
STARTS_MILVUS = [
    pytest.mark.cluster,
    pytest.mark.skipif(not HAS_MILVUS, reason=WITHOUT_MILVUS),
]

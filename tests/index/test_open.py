from __future__ import annotations

import pytest

from tests.index.backend_contract import BackendContract, Publish


class TestFiles(BackendContract):
    """An index of files, opened as an index is that may be anywhere."""

    @pytest.fixture(scope="class")
    @classmethod
    def publish(cls) -> Publish:
        return lambda files: files

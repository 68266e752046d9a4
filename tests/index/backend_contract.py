"""What every `SearchBackend` and `ItemWriter` has to do, whichever engine keeps the index.

A test class inherits `BackendContract` and says how an index of files gets where the backend has
it:

    class TestFiles(BackendContract):
        @pytest.fixture(scope="class")
        @classmethod
        def publish(cls) -> Publish:
            return lambda files: files

What is expected is worked out item by item in `tests.index.contract_items`.
"""

from __future__ import annotations

from tests.index.change_contract import ChangeContract
from tests.index.search_contract import SearchContract


class BackendContract(SearchContract, ChangeContract):
    """Tests of an open index, and of one that is written to."""

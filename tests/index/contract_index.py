"""Where the tests of a contract have their index from."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from aladin_index.generations.reader import SearchIndex
from aladin_network.checkpoint_files import Checkpoint

# From the folder of an index of files to that of the index that a backend opens.
Publish = Callable[[Path], Path]


class ContractIndex:
    """What the tests of all contracts have in common."""

    @pytest.fixture(scope="class")
    @classmethod
    def publish(cls) -> Publish:
        """Return a function that brings an index of files to where the backend has it."""
        raise NotImplementedError

    @pytest.fixture(scope="class")
    @classmethod
    def checkpoint(cls, search_index: SearchIndex) -> Checkpoint:
        return search_index.checkpoint

"""Where the tests of a contract have their index from, and what they compare hits with."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import ClassVar

import pytest

from aladin_index.search.results import SearchAnswer
from aladin_index.search.searcher import TwoStageSearcher
from aladin_network.checkpoint import load_checkpoint
from aladin_network.checkpoint_files import Checkpoint
from aladin_network.scoring.encoding import Encoding
from aladin_network.types import DIRECTION_OF, Modality
from tests.index.contract_items import (
    Expected,
    KnownItems,
    slow_search,
)

# From the folder of an index of files to that of the index that a backend opens.
Publish = Callable[[Path], Path]


class ContractIndex:
    """What the tests of all contracts have in common.

    Attributes:
        tolerance: of a score; floats are summed up in one order here and in others there.
    """

    tolerance: ClassVar[float] = 2e-5

    @pytest.fixture(scope="class")
    @classmethod
    def publish(cls) -> Publish:
        """Return a function that brings an index of files to where the backend has it."""
        raise NotImplementedError

    @pytest.fixture(scope="class")
    @classmethod
    def checkpoint(cls, tiny_checkpoint: Path) -> Checkpoint:
        return load_checkpoint(tiny_checkpoint)

    def _ranked(
        self,
        searcher: TwoStageSearcher,
        items: KnownItems,
        query: Encoding,
        modality: Modality,
        block: int,
        weight: float | None,
    ) -> list[Expected]:
        fusion = searcher.index.checkpoint.fusion.of(DIRECTION_OF[modality])
        weight = fusion.weight if weight is None else weight
        return slow_search(items.values(), query, modality, block, fusion=fusion, weight=weight)

    def _assert_hits(self, result: SearchAnswer, expected: Sequence[Expected]) -> None:
        """Compare all hits; an alignment score has the error of each word."""
        assert [hit.id for hit in result.hits] == [each.id for each in expected]
        for hit, each in zip(result.hits, expected, strict=True):
            assert hit.score == pytest.approx(each.score, abs=10 * self.tolerance)
            assert hit.stages.match.score == pytest.approx(each.match, abs=self.tolerance)
            assert hit.stages.align is not None
            assert hit.stages.align.score == pytest.approx(each.align, abs=10 * self.tolerance)

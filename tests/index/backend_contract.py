"""What every `SearchBackend` and `ItemWriter` has to do, whichever engine keeps the index.

A test class inherits one of these and says how an index of files gets where the backend has it:

    class TestFiles(BackendContract):
        @pytest.fixture(scope="class")
        @classmethod
        def publish(cls) -> Publish:
            return lambda files: files

What is expected is worked out item by item in `tests.index.contract_items`, or, of
`AgreementContract`, what the index of files answers.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from aladin_index.changes.encoded import ItemBatch
from aladin_index.open import open_backend, open_writer
from aladin_index.search.collection import SearchBackend
from aladin_index.search.results import SearchAnswer, SearchHit
from aladin_index.search.searcher import TwoStageSearcher
from aladin_network.calibration.calibration import Calibration
from aladin_network.checkpoint_files import Checkpoint
from aladin_network.scoring.encoding import Encoding
from aladin_network.types import Modality, Target
from tests.index.change_contract import ChangeContract
from tests.index.contract_index import ContractIndex, Publish
from tests.index.contract_items import (
    ODD_IDS,
    SETTINGS,
    captions,
    photos,
    renamed,
    taken,
)
from tests.index.search_contract import TEXTS
from tests.index.search_edge_contract import SearchEdgeContract
from tests.index.searching import run_search
from tests.index.written import write_index


class BackendContract(SearchEdgeContract, ChangeContract):
    """Tests of an open index, and of one that is written to."""


class AgreementContract(ContractIndex):
    """An index that was pushed to an engine answers as the one of files that it was made of."""

    # By default the form that is rounded most.
    @pytest.mark.parametrize("dtype", [pytest.param("int8", marks=pytest.mark.cluster), "4bit"])
    def test_answers_are_those_of_the_index_of_files(
        self,
        publish: Publish,
        tmp_path: Path,
        tiny_checkpoint: Path,
        checkpoint: Checkpoint,
        make_calibration: Callable[..., Calibration],
        dtype: Any,
    ) -> None:
        files = tmp_path / "files"
        texts = captions(checkpoint, TEXTS)
        calibration = make_calibration(checkpoint.model_id)
        collections: dict[Target, ItemBatch] = {"images": photos(20), "texts": texts}
        write_index(files, tiny_checkpoint, collections, dtype, SETTINGS, calibration=calibration)
        folder = publish(files)
        with (
            closing(open_backend(files, checkpoint=checkpoint)) as ours,
            closing(open_backend(folder, checkpoint=checkpoint)) as theirs,
        ):
            self._compare(ours, theirs)
            for root in (files, folder):
                with closing(open_writer(root, checkpoint.model_id)) as writer:
                    new = renamed(photos(6, first=20), ["a", "b", "c", "d", "photo 11", "f"])
                    writer.add("images", new, "replace")
                    writer.delete("images", ["b", "photo 15"])
                    again = renamed(taken(texts, [4, 5]), ["text 3", "another"])
                    again = replace(again, embeddings=photos(2, seed=9).embeddings)
                    writer.add("texts", again, "replace")
            self._compare(ours, theirs)
            for item_id in ("a", "photo 11", "photo 12", "text 3", "another"):
                one, other = (
                    TwoStageSearcher(index).stored_query(item_id).encoding
                    for index in (ours, theirs)
                )
                # Packed by the same codec, with what was learnt from the other collection.
                assert np.array_equal(one.tokens, other.tokens)
                assert np.array_equal(one.embedding, other.embedding)

    def _compare(self, ours: SearchBackend, theirs: SearchBackend) -> None:
        """Ask both indexes the same: texts and photos, with filters and without, several pages."""
        queries: list[tuple[Encoding, Modality, Target, str | None]] = []
        searcher = TwoStageSearcher(ours)
        for number in range(0, TEXTS, 6):
            text = searcher.find_item(f"text {number}")[0].text
            queries.append(
                (searcher.stored_query(f"text {number}").encoding, "text", "images", text)
            )
        for item_id in (ODD_IDS[2], "photo 16"):
            queries.append((searcher.stored_query(item_id).encoding, "image", "texts", None))
        for query, modality, target, text in queries:
            for options in (
                {},
                {"candidates": 4, "offset": 2, "fusion": 0.5},
                {"rerank": False, "filter": {"even": True}},
                {"filter": {"tags": ["red"]}, "min_probability": 0.3},
            ):
                one, other = (
                    run_search(
                        TwoStageSearcher(index),
                        query,
                        modality,
                        target,
                        k=6,
                        explain=True,
                        text=text,
                        size_px=(30, 20),
                        **options,
                    )
                    for index in (ours, theirs)
                )
                self._assert_same(one, other)

    def _assert_same(self, one: SearchAnswer, other: SearchAnswer) -> None:
        for name in ("reranked", "fusion", "candidates", "degraded", "no_match"):
            assert getattr(one, name) == getattr(other, name)
        assert len(one.hits) == len(other.hits)
        for ours, theirs in zip(one.hits, other.hits, strict=True):
            for name in ("id", "rank", "uri", "text", "metadata"):
                assert getattr(ours, name) == getattr(theirs, name)
            # Probabilities are steep in the scores.
            assert theirs.probability == pytest.approx(ours.probability, abs=1e-3)
            assert _scores(theirs) == pytest.approx(_scores(ours), abs=10 * self.tolerance)
            assert theirs.stages.match.rank == ours.stages.match.rank
            assert [replace(each, score=0, share=0) for each in theirs.evidence or ()] == [
                replace(each, score=0, share=0) for each in ours.evidence or ()
            ]


class RemoteContract(BackendContract, AgreementContract):
    """All that an index in an engine has to do."""


def _scores(hit: SearchHit) -> list[float]:
    assert hit.stages.align is not None
    assert hit.per_word is not None
    assert hit.evidence is not None
    of_words = [each.score for each in hit.evidence]
    return [hit.score, hit.per_word, hit.stages.match.score, hit.stages.align.score, *of_words]

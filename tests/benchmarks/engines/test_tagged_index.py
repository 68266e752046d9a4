"""The copy with metadata holds what its source does, and filters find what its rows say."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from aladin_index.generations.reader import open_index
from aladin_index.items.filters import parse_filter
from aladin_index.settings import BuildSettings
from benchmarks.engines.backends_agree import metadata_of, tag_index
from benchmarks.service.swap_index import SwapIndex


def test_a_tagged_copy_has_the_items_of_its_source_and_the_metadata_of_their_rows(
    tmp_path: Path,
) -> None:
    source = SwapIndex(tmp_path / "source", ["dogs run"]).root
    tag_index(source, tmp_path / "tagged", BuildSettings())
    with open_index(source) as before, open_index(tmp_path / "tagged") as after:
        ours, theirs = before.side("images"), after.side("images")
        rows = np.arange(ours.count)
        assert theirs.count == ours.count
        np.testing.assert_array_equal(theirs.base.embeddings, ours.base.embeddings)
        assert [item.id for item in theirs.items.by_rows(rows.tolist())] == [
            item.id for item in ours.items.by_rows(rows.tolist())
        ]
        assert theirs.items.by_rows([17])[0].metadata == metadata_of(17)
        # A fourth has no rating, whose rows end on 0, 4, 8 ...
        unrated = after.side("images", parse_filter({"rating": {"exists": False}})).selection
        assert unrated is not None
        np.testing.assert_array_equal(unrated.rows, rows[rows % 4 == 0])

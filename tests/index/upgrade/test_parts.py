from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import pytest

from aladin_index.build.shards import EMBEDDINGS, ShardFormat
from aladin_index.format.upgrade_plan import part_folders, parts_folder
from aladin_index.items.selection import Selection
from aladin_index.tokens.maxsim import score_block
from aladin_index.tokens.store import TokenBlock
from aladin_index.upgrade.parts import EncodedRows, PartsReader
from aladin_network.checkpoint import load_checkpoint
from aladin_network.errors import IndexCorruptError
from tests.index.upgrade.conftest import Begin


@pytest.fixture
def form(new_checkpoint: Path) -> ShardFormat:
    return ShardFormat.of(load_checkpoint(new_checkpoint).model)


@pytest.fixture
def encoded(index_copy: Path, begin: Begin, form: ShardFormat) -> EncodedRows:
    """Three parts: the sample of nine of 23 images, and six more of them."""
    begin(index_copy, 5)  # two of the images' sample, two of the texts', one of the rest
    return PartsReader(index_copy, "images", form).snapshot()


def test_rows_are_found_in_any_part(encoded: EncodedRows) -> None:
    assert [len(part.rows) for part in encoded.parts] == [6, 3, 6]
    rows = encoded.rows
    assert len(set(rows.tolist())) == 15
    every = np.arange(30)
    assert set(every[encoded.are_encoded(every)].tolist()) == set(rows.tolist())
    order = np.random.default_rng(0).permutation(rows)
    expected = np.concatenate([part.embeddings for part in encoded.parts])
    place = {row: number for number, row in enumerate(rows.tolist())}
    places = [place[row] for row in order.tolist()]
    np.testing.assert_array_equal(encoded.embeddings(order), expected[places])
    lengths = np.concatenate(
        [part.store.lengths(np.arange(len(part.rows))) for part in encoded.parts]
    )
    np.testing.assert_array_equal(encoded.lengths(order), lengths[places])
    with pytest.raises(KeyError, match=r"rows that are not encoded"):
        encoded.embeddings(np.array([int(np.setdiff1d(every, rows)[0])]))


def test_all_of_them_are_compared(encoded: EncodedRows) -> None:
    query = encoded.embeddings(encoded.rows[3:4])[0]
    allowed = Selection.of_mask(np.arange(23) % 3 != 0)
    for selection in (None, allowed):
        rows, match = encoded.nearest(query, 5, selection)
        known = [row for row in encoded.rows.tolist() if selection is None or row % 3]
        scores = {row: float(encoded.embeddings(np.array([row]))[0] @ query) for row in known}
        expected = sorted(known, key=lambda row: (-scores[row], row))[:5]
        assert rows.tolist() == expected
        np.testing.assert_allclose(match, [scores[row] for row in expected], atol=1e-6)
        assert len(encoded.nearest(query, None, selection)[0]) == len(known)


def test_tokens_are_scored_as_one_by_one(encoded: EncodedRows) -> None:
    random = np.random.default_rng(1)
    query = random.standard_normal((4, 12)).astype(np.float32)
    query /= np.linalg.norm(query, axis=1, keepdims=True)
    rows = random.permutation(encoded.rows)
    for modality in ("text", "image"):
        found = encoded.align(query, modality, rows)  # type: ignore[arg-type]
        for row, score, cosines in zip(
            rows.tolist(),
            found,
            encoded.similarities(query, modality, rows),
            strict=True,  # type: ignore[arg-type]
        ):
            tokens = encoded.tokens(np.array([row])).values.astype(np.float32)
            block = TokenBlock(tokens, np.array([len(tokens)]))
            assert score == pytest.approx(score_block(query, modality, block)[0], abs=5e-3)  # type: ignore[arg-type]
            np.testing.assert_allclose(cosines, query @ tokens.T, atol=5e-3)


def test_a_reader_follows_new_parts_and_outlives_the_folder(
    index_copy: Path, begin: Begin, form: ShardFormat
) -> None:
    reader = PartsReader(index_copy, "images", form)
    assert reader.snapshot().parts == ()
    begin(index_copy, 5)
    first = reader.snapshot()
    assert len(first.parts) == 3
    assert reader.snapshot().rows.tolist() == first.rows.tolist()
    away = part_folders(index_copy, "images")[2]
    copy = away.with_name("000009")
    shutil.copytree(away, copy.with_name(".copy.partial"))
    copy.with_name(".copy.partial").rename(copy)
    assert len(reader.snapshot().parts) == 4
    shutil.rmtree(parts_folder(index_copy, "images"))
    assert len(reader.snapshot().parts) == 4
    assert len(first.parts) == 3


def test_a_damaged_part_is_named(index_copy: Path, begin: Begin, form: ShardFormat) -> None:
    begin(index_copy, 5)
    folder = part_folders(index_copy, "images")[1]
    (folder / EMBEDDINGS).write_bytes(b"nothing")
    with pytest.raises(IndexCorruptError, match=folder.name):
        PartsReader(index_copy, "images", form).snapshot()

"""Batches of encodings."""

from __future__ import annotations

import torch

from aladin_network.scoring.scores import EncodedBatch, concatenate


def encoding(items: int, tokens: int, start: float) -> EncodedBatch:
    values = torch.arange(start, start + items * tokens * 2).view(items, tokens, 2)
    return EncodedBatch(values[:, 0], values, torch.ones(items, tokens, dtype=torch.bool))


def test_batches_of_different_lengths_join_without_changing_an_item() -> None:
    short, long = encoding(2, 1, 0.0), encoding(1, 3, 100.0)
    joined = concatenate([short, long])
    assert joined.size == 3
    assert joined.mask.tolist() == [[True, False, False], [True, False, False], [True] * 3]
    for row, part, part_row in ((0, short, 0), (1, short, 1), (2, long, 0)):
        assert torch.equal(joined.item_tokens(row), part.item_tokens(part_row))
        assert torch.equal(joined.embedding[row], part.embedding[part_row])
    assert not joined.tokens[:2, 1:].any()


def test_rows_pick_items_by_slice_and_by_index() -> None:
    batch = encoding(4, 2, 0.0)
    assert torch.equal(batch.rows(slice(1, 3)).tokens, batch.tokens[1:3])
    assert torch.equal(batch.rows(torch.tensor([3, 0])).embedding, batch.embedding[[3, 0]])

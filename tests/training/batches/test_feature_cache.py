"""The cache of frozen encoders' outputs."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from aladin_network.encoders.base import Features
from aladin_network.errors import ShapeError
from aladin_training.batches.feature_cache import FeatureCache, content_digest


def features(lengths: list[int], seed: int = 0) -> Features:
    """Items of these numbers of tokens, the first of which is no content; 9 in the padding."""
    generator = torch.Generator().manual_seed(seed)
    longest = max(lengths)
    mask = torch.arange(longest) < torch.tensor(lengths).unsqueeze(1)
    states = torch.randn(len(lengths), longest, 4, generator=generator).half().float()
    content = mask.clone()
    content[:, 0] = False
    return Features(states.masked_fill(~mask.unsqueeze(-1), 9.0), mask, content)


def assert_item(found: Features, row: int, expected: Features, expected_row: int) -> None:
    real = expected.mask[expected_row]
    length = int(real.sum())
    assert found.mask[row].sum() == length
    assert torch.equal(found.states[row, :length], expected.states[expected_row][real])
    assert torch.equal(found.content[row, :length], expected.content[expected_row][real])
    assert not found.states[row, length:].any()
    assert not found.content[row, length:].any()


def test_items_come_back_in_any_order_and_company(tmp_path: Path) -> None:
    cache = FeatureCache(tmp_path, "encoder")
    first, second = features([3, 5]), features([2], seed=1)
    cache.add(["a", "b"], first)
    cache.add(["c"], second)
    found = cache.get(["c", "b", "a", "c"])
    assert found.states.dtype == torch.float32
    assert found.states.shape == (4, 5, 4)
    for row, (part, part_row) in enumerate([(second, 0), (first, 1), (first, 0), (second, 0)]):
        assert_item(found, row, part, part_row)
    assert cache.get(["c"]).states.shape == (1, 2, 4)


def test_it_survives_the_process_and_knows_what_it_has(tmp_path: Path) -> None:
    part = features([3, 5])
    FeatureCache(tmp_path, "encoder").add(["a", "b"], part)
    again = FeatureCache(tmp_path, "encoder")
    assert "a" in again
    assert "c" not in again
    assert_item(again.get(["b"]), 0, part, 1)


def test_another_encoder_has_another_cache(tmp_path: Path) -> None:
    FeatureCache(tmp_path, "encoder").add(["a"], features([3]))
    assert "a" not in FeatureCache(tmp_path, "encoder with other weights")


def test_states_are_rounded_to_float16(tmp_path: Path) -> None:
    cache = FeatureCache(tmp_path, "encoder")
    exact = torch.full((1, 1, 2), 1 / 3)
    mask = torch.ones(1, 1, dtype=torch.bool)
    cache.add(["a"], Features(exact, mask, mask))
    assert torch.equal(cache.get(["a"]).states, exact.half().float())


@pytest.mark.parametrize("lost", ["json", "states", "content"])
def test_a_part_that_was_cut_off_is_computed_again(tmp_path: Path, lost: str) -> None:
    """The index of a part is written last: without it the rest does not count."""
    cache = FeatureCache(tmp_path, "encoder")
    cache.add(["a"], features([3]))
    cache.add(["b"], features([2], seed=1))
    index = next(path for path in cache.folder.glob("*.json") if '"a"' in path.read_text())
    index.unlink()
    if lost != "json":
        (cache.folder / f"{index.stem}.{lost}.npy").unlink()
    again = FeatureCache(tmp_path, "encoder")
    assert "a" not in again
    assert "b" in again
    again.add(["a"], features([3]))
    assert_item(again.get(["a"]), 0, features([3]), 0)


def test_one_key_for_each_item(tmp_path: Path) -> None:
    with pytest.raises(ShapeError):
        FeatureCache(tmp_path, "encoder").add(["a"], features([3, 5]))


def test_the_key_depends_on_content_and_variant() -> None:
    keys = {content_digest(*args) for args in ((b"x",), (b"y",), (b"x", "mirrored"))}
    assert len(keys) == 3
    assert content_digest(b"x") == content_digest(b"x", "")

"""Mining by each score of a real, tiny network, against its whole score matrix."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import torch

import aladin_training.batches.dataset
from aladin_network.errors import InputError
from aladin_network.model import AladinModel
from aladin_network.types import NullProgress, ScoreName
from aladin_training.batches.dataset import PairDataset
from aladin_training.batches.inputs import Caches
from aladin_training.batches.offline_negatives import MinedFrom, OfflineNegatives
from aladin_training.config.defaults import Lists
from aladin_training.data import Record, read_records
from aladin_training.mining import miner as encodings
from aladin_training.mining.miner import mine_negatives


@pytest.fixture
def model(build_tiny: Callable[..., AladinModel]) -> AladinModel:
    return build_tiny()


@pytest.fixture
def records(data_set: Path) -> list[Record]:
    return read_records(data_set, "train")


def prepare(records: list[Record], model: AladinModel, cache: Path) -> PairDataset:
    return PairDataset.prepare(records, model, Caches(cache, "float32"), ["plain"], NullProgress())


def mine(model: AladinModel, dataset: PairDataset, lists: Lists = Lists()) -> OfflineNegatives:  # noqa: B008
    return mine_negatives(model, dataset, MinedFrom.of(dataset.digest, "teacher", lists))


@pytest.mark.parametrize("score", ["matching", "alignment"])
@torch.inference_mode()
def test_keeps_the_hardest_of_the_whole_matrix(
    model: AladinModel,
    records: list[Record],
    tmp_path: Path,
    score: ScoreName,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    dataset = prepare(records, model, tmp_path)
    images, texts = dataset.encode(model)
    monkeypatch.setattr(aladin_training.batches.dataset, "READ_A_BATCH", 5)
    mined = mine(model, dataset, Lists(score, 4, 3))
    scores = model.scores(score, images, texts)
    own = torch.arange(len(records))[:, None] == dataset.image_of_text
    scores = scores.masked_fill(own, float("-inf"))
    # Pictures of one colour are alike to the network: only the scores of the lists are fixed.
    expected = scores.topk(4, dim=1).values
    assert torch.allclose(scores.gather(1, mined.texts.long()), expected, atol=1e-5)
    expected = scores.T.topk(3, dim=1).values
    assert torch.allclose(scores.T.gather(1, mined.images.long()), expected, atol=1e-5)
    for lists in (mined.texts, mined.images):
        assert all(len(set(rows)) == len(rows) for rows in lists.tolist())


def test_takes_all_there_are_if_they_are_few(
    model: AladinModel, records: list[Record], tmp_path: Path
) -> None:
    dataset = prepare(records[:3], model, tmp_path)  # with one, two and three captions
    mined = mine(model, dataset)
    assert mined.texts.shape == (3, 300)
    assert mined.images.shape == (6, 60)
    taken = [sorted(row for row in rows if row >= 0) for rows in mined.texts.tolist()]
    assert taken == [[1, 2, 3, 4, 5], [0, 3, 4, 5], [0, 1, 2]]
    taken = [sorted(row for row in rows if row >= 0) for rows in mined.images.tolist()]
    assert taken == [[1, 2], [0, 2], [0, 2], [0, 1], [0, 1], [0, 1]]


def test_embeddings_are_mined_without_keeping_tokens(
    model: AladinModel, records: list[Record], tmp_path: Path
) -> None:
    dataset = prepare(records, model, tmp_path)
    whole = dataset.encode(model)
    slim = encodings.encode_for_score(model, dataset, "matching", NullProgress())
    for ours, theirs in zip(slim, whole, strict=True):
        assert torch.allclose(ours.embedding, theirs.embedding, atol=1e-6)
        assert ours.tokens.numel() == ours.mask.numel() == 0
    full = encodings.encode_for_score(model, dataset, "alignment", NullProgress())
    for ours, theirs in zip(full, whole, strict=True):
        assert torch.allclose(ours.tokens, theirs.tokens, atol=1e-6)
        assert torch.equal(ours.mask, theirs.mask)


@pytest.mark.parametrize(
    ("lists", "photos", "says"),
    [
        (Lists("matching", 0, 5), 12, "got 0 texts and 5 images"),
        (Lists("matching", 5, 0), 12, "got 5 texts and 0 images"),
        (Lists("attention"), 12, "no score 'attention', only matching, alignment"),
        (Lists(), 1, "at least 2 photos, got 1"),
    ],
)
def test_what_cannot_be_mined_is_refused(
    model: AladinModel, records: list[Record], tmp_path: Path, lists: Lists, photos: int, says: str
) -> None:
    with pytest.raises(InputError, match=says):
        mine(model, prepare(records[:photos], model, tmp_path), lists)

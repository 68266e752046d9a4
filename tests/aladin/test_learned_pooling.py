"""The learned pooling of converted late-interaction networks: it starts as the mean."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch.nn import functional as F

from aladin_network.checkpoint import load_checkpoint
from aladin_network.config import MatchingHeadConfig
from aladin_network.conversion.multivector import convert_multivector
from aladin_network.encoders.base import Features
from aladin_network.errors import ConfigError
from aladin_network.heads.matching import MatchingHead
from aladin_network.heads.pooling import LearnedPooling
from tests.aladin.conversion.text_networks import DOCUMENTS, QUERIES, write_of_pylate
from tests.tensors import encode_documents, encode_texts

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning")


def test_the_embedding_is_the_mean_until_it_is_trained(tmp_path: Path) -> None:
    write_of_pylate(tmp_path / "source")
    for pooling in ("mean", "learned"):
        convert_multivector(str(tmp_path / "source"), tmp_path / pooling, pooling=pooling)
    mean = load_checkpoint(tmp_path / "mean").model
    learned = load_checkpoint(tmp_path / "learned").model
    assert learned.matching.dim == mean.matching.dim == 12
    assert list(mean.matching.parameters()) == []
    for encode, texts in ((encode_documents, DOCUMENTS), (encode_texts, QUERIES)):
        expected, found = encode(mean, texts), encode(learned, texts)
        torch.testing.assert_close(found.embedding, expected.embedding, atol=1e-6, rtol=0)
        torch.testing.assert_close(found.tokens, expected.tokens, atol=0, rtol=0)


@torch.no_grad()
def test_the_weights_and_features_are_those_of_the_formula() -> None:
    torch.manual_seed(0)
    pooling = LearnedPooling(3, 2)
    torch.nn.init.normal_(pooling.score.weight)
    states = torch.randn(2, 4, 3)
    content = torch.tensor([[False, True, True, False], [True, True, True, True]])
    found = pooling(states, content)
    for row in range(2):
        tokens = states[row][content[row]]
        raw = torch.exp(tokens @ pooling.score.weight[0])
        weights = raw / raw.sum()
        features = F.gelu(tokens @ pooling.features.weight.T + pooling.features.bias)
        expected = weights @ torch.cat([tokens, features], dim=1)
        torch.testing.assert_close(found[row], expected)
    none = pooling(states, torch.zeros(2, 4, dtype=torch.bool))
    torch.testing.assert_close(none[:, :3], torch.zeros(2, 3))


def test_a_learned_pooling_needs_a_dim_and_its_own_parameters_by_modality() -> None:
    with pytest.raises(ConfigError, match="a learned pooling needs a dim"):
        MatchingHead(MatchingHeadConfig(layers=0, pooling=("learned",)), 8, 8)
    config = MatchingHeadConfig(layers=0, pooling=("mean", "learned"), dim=5, feedforward=6)
    head = MatchingHead(config, 8, 4)
    assert head.projections["image"].in_features == 8 + 8 + 6
    assert head.projections["text"].in_features == 4 + 4 + 6
    mask = torch.ones(3, 2, dtype=torch.bool)
    features = Features(torch.randn(3, 2, 4), mask, mask)
    assert head(features, "text").shape == (3, 5)

"""The attention head against loops over single words and regions."""

from __future__ import annotations

from typing import Literal

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from aladin_network.config import AttentionHeadConfig
from aladin_network.errors import ShapeError
from aladin_network.heads.attention import AttentionHead
from aladin_network.scoring.scores import EncodedBatch

Form = Literal["official", "paper"]
FORMS: tuple[Form, ...] = ("official", "paper")
WIDTH = 6


def head(form: Form = "official", **options: float) -> AttentionHead:
    torch.manual_seed(3)
    config = AttentionHeadConfig(dim=5, form=form, **options)  # type: ignore[arg-type]
    made = AttentionHead(config, WIDTH).double()
    with torch.no_grad():
        made.comparison.bias.uniform_(-0.1, 0.1)
        made.output.bias.fill_(0.2)
    return made


def encoding(lengths: list[int], seed: int, longest: int | None = None) -> EncodedBatch:
    """Random unit tokens; `lengths` are the numbers of real ones."""
    generator = torch.Generator().manual_seed(seed)
    size = len(lengths), longest or max(lengths), WIDTH
    tokens = F.normalize(torch.randn(size, generator=generator, dtype=torch.float64), dim=-1)
    mask = torch.arange(size[1]) < torch.tensor(lengths).unsqueeze(1)
    return EncodedBatch(torch.ones(len(lengths), 1), tokens, mask)


@pytest.fixture
def images() -> EncodedBatch:
    """Four photos of up to 5 regions."""
    return encoding([5, 3, 1, 4], 0)


@pytest.fixture
def texts() -> EncodedBatch:
    """Four texts of up to 7 words."""
    return encoding([2, 7, 1, 4], 1)


def unit(vector: Tensor) -> Tensor:
    return vector / vector.pow(2).sum().sqrt()


def reference(network: AttentionHead, words: Tensor, regions: Tensor) -> Tensor:
    """Score one text's real words with one photo's real regions, as DBL prints it."""
    official = network.config.form == "official"
    columns: list[list[Tensor]] = []
    for region in regions:
        column: list[Tensor] = []
        for word in words:
            cosine = (word * region).sum()
            slope = 0.1 if official else 0.0
            column.append(cosine if cosine > 0 else slope * cosine)
        squares = torch.stack([value**2 for value in column]).sum()
        norm = squares.sqrt() if squares > 0 else squares.detach()
        columns.append([value / (norm + 1e-8) for value in column])
    pooled = torch.zeros(network.config.dim, dtype=torch.float64)
    for number, word in enumerate(words):
        weights = [torch.exp(network.config.temperature * column[number]) for column in columns]
        total = torch.stack(weights).sum()
        attended = torch.zeros(WIDTH, dtype=torch.float64)
        for weight, region in zip(weights, regions, strict=True):
            attended = attended + weight / total * region
        if official:
            attended = unit(attended)
        difference = (word - attended) ** 2
        compared = network.comparison.weight @ difference + network.comparison.bias
        pooled = pooled + unit(compared) / len(words)
    if official:
        pooled = unit(pooled)
    return torch.tanh(network.output.weight[0] @ pooled + network.output.bias[0])


def all_by_loops(network: AttentionHead, images: EncodedBatch, texts: EncodedBatch) -> Tensor:
    scores = [
        reference(network, texts.item_tokens(text), images.item_tokens(image))
        for image in range(images.size)
        for text in range(texts.size)
    ]
    return torch.stack(scores).view(images.size, texts.size)


def gradients(
    network: AttentionHead,
    images: EncodedBatch,
    texts: EncodedBatch,
    budget_bytes: int | None = None,
) -> list[Tensor]:
    """Scores of all pairs, and the gradients of a weighted sum; None: by loops."""
    leaves = images.tokens.clone().requires_grad_(), texts.tokens.clone().requires_grad_()
    images, texts = images._replace(tokens=leaves[0]), texts._replace(tokens=leaves[1])
    if budget_bytes is None:
        scores = all_by_loops(network, images, texts)
    else:
        scores = network(images, texts, budget_bytes)
    weights = torch.arange(scores.numel(), dtype=scores.dtype).view_as(scores)
    wanted = [*leaves, *network.parameters()]
    return [scores.detach(), *torch.autograd.grad((scores * weights).sum(), wanted)]


@pytest.mark.parametrize("form", FORMS)
def test_values_and_gradients_are_the_loops(
    form: Form, images: EncodedBatch, texts: EncodedBatch
) -> None:
    network = head(form)
    ours = gradients(network, images, texts, 10**9)
    torch.testing.assert_close(ours, gradients(network, images, texts), atol=1e-10, rtol=1e-8)
    assert bool((ours[0].abs() < 1).all())


@pytest.mark.parametrize("form", FORMS)
def test_pairs_are_the_diagonal(form: Form, images: EncodedBatch, texts: EncodedBatch) -> None:
    network = head(form)
    all_pairs, pairs = network(images, texts), network.paired(images, texts)
    torch.testing.assert_close(pairs, all_pairs.diagonal())
    parameters = list(network.parameters())
    torch.testing.assert_close(
        torch.autograd.grad(pairs.sum(), parameters),
        torch.autograd.grad(all_pairs.trace(), parameters),
    )
    with pytest.raises(ShapeError, match="4 texts, one for each image, got 3"):
        network.paired(images, texts.rows(slice(3)))


@pytest.mark.parametrize("budget_bytes", [1, 5_000, 20_000])
def test_chunks_change_neither_scores_nor_gradients(
    budget_bytes: int, images: EncodedBatch, texts: EncodedBatch
) -> None:
    network = head()
    chunked = gradients(network, images, texts, budget_bytes)
    torch.testing.assert_close(chunked, gradients(network, images, texts, 10**9))
    with torch.no_grad():
        torch.testing.assert_close(network(images, texts, budget_bytes), chunked[0])


# One pair: 4 live copies x 7 words x (5 regions + 6 wide + 5 of the comparison) x 8 bytes.
PAIR_BYTES = 4 * 7 * (5 + WIDTH + 5) * 8


@pytest.mark.parametrize(
    ("budget_bytes", "blocks"),
    [
        (1, [(1, 1)] * 16),
        (2 * PAIR_BYTES - 1, [(1, 1)] * 16),
        (2 * PAIR_BYTES, [(1, 2)] * 8),
        (7 * PAIR_BYTES, [(1, 4)] * 4),
        (12 * PAIR_BYTES, [(3, 4), (1, 4)]),
        (16 * PAIR_BYTES, [(4, 4)]),
    ],
)
def test_blocks_of_pairs_fill_the_memory_budget(
    monkeypatch: pytest.MonkeyPatch,
    images: EncodedBatch,
    texts: EncodedBatch,
    budget_bytes: int,
    blocks: list[tuple[int, int]],
) -> None:
    network = head()
    scored: list[tuple[int, int]] = []
    recomputed: list[tuple[int, int]] = []
    score, score_again = network._block, network._recomputed_block

    def block(images: EncodedBatch, texts: EncodedBatch) -> Tensor:
        scored.append((images.size, texts.size))
        return score(images, texts)

    def recomputed_block(images: EncodedBatch, texts: EncodedBatch) -> Tensor:
        recomputed.append((images.size, texts.size))
        return score_again(images, texts)

    monkeypatch.setattr(network, "_block", block)
    monkeypatch.setattr(network, "_recomputed_block", recomputed_block)
    network(images, texts, budget_bytes)
    assert scored == blocks
    # Several blocks are computed again in the backward pass; a single one is kept.
    assert recomputed == (blocks if len(blocks) > 1 else [])
    with torch.no_grad():
        network(images, texts, budget_bytes)
    assert scored == 2 * blocks
    assert len(recomputed) == (len(blocks) if len(blocks) > 1 else 0)


def test_a_region_that_suits_no_word_has_a_gradient(texts: EncodedBatch) -> None:
    """In the paper's form its whole column is 0, and so is its norm."""
    network = head("paper")
    against = -F.normalize((texts.tokens * texts.mask.unsqueeze(-1))[3].sum(dim=0), dim=-1)
    words = texts.rows(slice(3, 4))
    words = words._replace(tokens=against.neg().expand(1, 7, WIDTH).clone().requires_grad_())
    regions = EncodedBatch(
        torch.ones(1, 1),
        torch.stack([against, -against]).unsqueeze(0).requires_grad_(),
        torch.ones(1, 2, dtype=torch.bool),
    )
    scores = network(regions, words)
    found = torch.autograd.grad(scores.sum(), [regions.tokens, words.tokens, *network.parameters()])
    assert all(bool(torch.isfinite(gradient).all()) for gradient in (scores, *found))


@pytest.mark.parametrize("form", FORMS)
def test_a_photo_without_regions_and_a_text_without_words_stay_finite(form: Form) -> None:
    network = head(form)
    images, texts = encoding([0, 3], 0), encoding([2, 0], 1)
    found = gradients(network, images, texts, 10**9)
    assert all(bool(torch.isfinite(values).all()) for values in found)
    torch.testing.assert_close(found[0][:, 1], torch.tanh(network.output.bias).detach().expand(2))


def test_autocast_trains_and_scores_in_float32(images: EncodedBatch, texts: EncodedBatch) -> None:
    network = head().float()
    images, texts = (part._replace(tokens=part.tokens.float()) for part in (images, texts))
    expected = network(images, texts)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        scores = network(images, texts, 1)
        pairs = network.paired(images, texts)
    scores.sum().backward()
    assert scores.dtype == pairs.dtype == torch.float32
    torch.testing.assert_close(scores, expected, atol=0.05, rtol=0)
    torch.testing.assert_close(pairs, expected.diagonal(), atol=0.05, rtol=0)
    assert network.comparison.weight.grad is not None
    assert bool(torch.isfinite(network.comparison.weight.grad).all())

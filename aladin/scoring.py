"""Late interaction: for every word its best region, summed (ALADIN eqs 1-2).

Pure functions of tensors; the caller has normalised the tokens.
"""

from __future__ import annotations

import torch
from jaxtyping import Bool, Float
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from aladin.encoding import Encoding
from aladin.masking import fill_padding

# The similarity block (texts x words x images x regions) of one chunk stays below this.
MEMORY_BUDGET_BYTES = 256 * 2**20


def maxsim(
    words: Float[Tensor, "texts words dim"],
    regions: Float[Tensor, "images regions dim"],
    word_mask: Bool[Tensor, "texts words"],
    region_mask: Bool[Tensor, "images regions"],
    padding_score: float = float("-inf"),
) -> Float[Tensor, "texts images"]:
    """Score every text against every image by late interaction (ALADIN eq 2).

    Each real word takes its best real region; the words' scores are summed.

    >>> words = torch.tensor([[[1.0, 0.0], [0.0, 1.0]]])
    >>> regions = torch.tensor([[[0.6, 0.8], [1.0, 0.0], [9.0, 9.0]]])
    >>> real = torch.tensor([[True, True, False]])
    >>> maxsim(words, regions, torch.tensor([[True, True]]), real)
    tensor([[1.8000]])

    Args:
        words: L2-normalised word tokens.
        regions: L2-normalised region tokens, same dtype and device.
        word_mask: True at real words; a padded word adds 0.
        region_mask: True at real regions.
        padding_score: what a padded region scores. -inf: it can never be the best one;
            0: the official code's behaviour, where padding floors the max (A-5).

    Returns:
        Scores in [-words, words], float32 or wider; larger is more similar. An image with
        no real region scores 0.
    """
    n_texts, n_words, dim = words.shape
    n_images, n_regions, _ = regions.shape
    similarity = words.reshape(-1, dim) @ regions.reshape(-1, dim).T
    similarity = similarity.view(n_texts, n_words, n_images, n_regions)
    if not bool(region_mask.all()):
        similarity = fill_padding(similarity, region_mask, padding_score)
    # max(dim), unlike amax, keeps one index: its gradient is a gather, not another dense pass.
    best = similarity.max(dim=-1).values  # (texts, words, images)
    best = best.masked_fill(~region_mask.any(dim=1), 0)
    best = best.masked_fill(~word_mask.unsqueeze(-1), 0)
    return best.to(torch.promote_types(best.dtype, torch.float32)).sum(dim=1)


def alignment_scores(
    images: Encoding,
    texts: Encoding,
    padding_score: float = float("-inf"),
    memory_budget_bytes: int = MEMORY_BUDGET_BYTES,
) -> Float[Tensor, "images texts"]:
    """Score all pairs of two batches, in chunks that fit a memory budget.

    With gradients, each chunk's similarity block is computed again in the backward pass
    rather than kept, so that the budget holds there too.

    Args:
        images: encoded images.
        texts: encoded texts.
        padding_score: see `maxsim`.
        memory_budget_bytes: upper bound of one chunk's similarity block.

    Returns:
        ``scores[image, text]``.
    """
    n_words, n_regions = texts.mask.shape[1], images.mask.shape[1]
    cells = max(1, memory_budget_bytes // (n_words * n_regions * images.tokens.element_size()))
    text_chunk = min(texts.size, max(1, cells // max(1, images.size)))
    image_chunk = min(images.size, max(1, cells // text_chunk))

    def score(image_rows: slice, text_rows: slice) -> Tensor:
        operands = (
            texts.tokens[text_rows],
            images.tokens[image_rows],
            texts.mask[text_rows],
            images.mask[image_rows],
            padding_score,
        )
        if whole or not torch.is_grad_enabled():
            return maxsim(*operands)
        return checkpoint(maxsim, *operands, use_reentrant=False)

    whole = text_chunk == texts.size and image_chunk == images.size
    columns = [
        torch.cat([score(image_rows, text_rows) for image_rows in _slices(images.size, image_chunk)], 1)
        for text_rows in _slices(texts.size, text_chunk)
    ]
    return torch.cat(columns).T  # (images, texts)


def matching_scores(images: Encoding, texts: Encoding) -> Float[Tensor, "images texts"]:
    """Cosine of every image's embedding with every text's (ALADIN section 2.4)."""
    return images.embedding @ texts.embedding.T


def _slices(total: int, step: int) -> list[slice]:
    return [slice(start, start + step) for start in range(0, total, step)]

"""The attention head: words compared with their attended regions (DBL eqs 1-3).

Unlike late interaction it processes each pair by trained layers, which is expensive: it serves as a
teacher for the other heads, and as the baseline of DBL's experiments.
"""

from __future__ import annotations

from typing import Literal

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint

from aladin_network.config import AttentionHeadConfig
from aladin_network.scoring.masking import fill_padding
from aladin_network.scoring.scores import MEMORY_BUDGET_BYTES, EncodedBatch, check_paired

# Lower bound of every norm, as in the official code.
_EPSILON = 1e-8
# Number of arrays of each size (words x regions, x width, x dim) that a block holds at its peak,
# which is in the backward pass.
_LIVE_COPIES = 4


def attention_weights(
    similarity: Float[Tensor, "*pairs words regions"],
    word_mask: Bool[Tensor, "*#pairs words"],
    region_mask: Bool[Tensor, "*#pairs regions"],
    temperature: float = 9.0,
    form: Literal["official", "paper"] = "official",
) -> Float[Tensor, "*pairs words regions"]:
    """Compute the weights of a photo's regions for each word of a text.

    Each region's similarities are L2-normalised over the words, so that a region which suits
    every word attracts none of them especially; a softmax over the regions follows.

    Args:
        similarity: Cosines of words and regions, any number of pairs.
        word_mask: True at real words; the others do not enter a region's norm.
        region_mask: True at real regions; the others weigh 0.
        temperature: Factor that multiplies the normalised similarities before the softmax.
        form: "official" keeps a tenth of negative similarities, "paper" clips them at 0 (D-7).

    Returns:
        Weights that add up to 1 over the real regions, or all 0 where a photo has none.
    """
    slope = 0.1 if form == "official" else 0.0
    similarity = F.leaky_relu(similarity, slope).masked_fill(~word_mask.unsqueeze(-1), 0)
    # torch's norm has a zero gradient at 0, where an explicit square root gives NaN: in the paper's
    # form, a region that matches no word is such a column.
    norm = torch.linalg.vector_norm(similarity, dim=-2, keepdim=True)
    regions = region_mask.unsqueeze(-2)  # (*pairs, 1, regions)
    # The lowest finite number, not -inf: a photo without regions must not give NaN.
    lowest = torch.finfo(similarity.dtype).min
    logits = fill_padding(temperature * similarity / (norm + _EPSILON), regions, lowest)
    return logits.softmax(dim=-1).masked_fill(~regions, 0)


class AttentionHead(nn.Module):
    """Text-to-image attention and a learned comparison: one scalar in (-1, 1) per pair.

    For word t_l of a text and what it attends to, v'_l::

        a_l = norm(W_1 (t_l - v'_l)^2 + b_1)        S = tanh(W_2 mean_l a_l + b_2)
    """

    def __init__(self, config: AttentionHeadConfig, width: int) -> None:
        """Build the head.

        Args:
            config: Options of the head.
            width: Width of the tokens that it compares.
        """
        super().__init__()
        self.config = config
        self.comparison = nn.Linear(width, config.dim)
        self.output = nn.Linear(config.dim, 1)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Reset to random weights.

        Squared differences of unit vectors are small, and what the comparison makes of them is
        normalised: torch's usual random bias would drown them, so it starts at 0.
        """
        for layer in (self.comparison, self.output):
            nn.init.xavier_uniform_(layer.weight)
            nn.init.zeros_(layer.bias)

    def forward(
        self,
        images: EncodedBatch,
        texts: EncodedBatch,
        memory_budget_bytes: int = MEMORY_BUDGET_BYTES,
    ) -> Float[Tensor, "images texts"]:
        """Score all pairs of two batches.

        Args:
            images: Encoded images, with tokens of unit length.
            texts: Encoded texts, with tokens of unit length.
            memory_budget_bytes: Upper bound of the memory that one block of pairs takes. In
                training, a block is computed a second time in the backward pass instead of being
                kept.

        Returns:
            ``scores[image, text]``.
        """
        _, words, width = texts.tokens.shape
        word_numbers = images.mask.shape[1] + width + self.config.dim
        pair_bytes = _LIVE_COPIES * words * word_numbers * texts.tokens.element_size()
        pairs_a_block = max(1, memory_budget_bytes // max(1, pair_bytes))
        text_groups = _split(texts, pairs_a_block)
        image_groups = _split(images, max(1, pairs_a_block // max(1, text_groups[0].size)))
        single = len(image_groups) == len(text_groups) == 1
        block = self._block if single or not torch.is_grad_enabled() else self._recomputed_block
        rows: list[Tensor] = []
        for image_group in image_groups:
            columns = [block(image_group, text_group) for text_group in text_groups]
            rows.append(torch.cat(columns, dim=1))
        return torch.cat(rows)

    def paired(self, images: EncodedBatch, texts: EncodedBatch) -> Float[Tensor, " pairs"]:
        """Score each image with the text of its row: the diagonal of `forward`.

        Raises:
            ShapeError: If the batches differ in length.
        """
        check_paired(images, texts)
        similarity = texts.tokens @ images.tokens.mT  # (pairs, words, regions)
        weights = self._weights(similarity, texts.mask, images.mask)
        attended = weights @ images.tokens  # (pairs, words, dim)
        return self._compare(attended.flatten(0, 1).index_select(0, _real_words(texts)), texts)

    def _recomputed_block(self, images: EncodedBatch, texts: EncodedBatch) -> Tensor:
        """Score all pairs as `_block` does, recomputing in the backward pass to save memory."""
        scores = checkpoint(
            self._block, images, texts, use_reentrant=False, preserve_rng_state=False
        )
        assert isinstance(scores, Tensor)
        return scores

    def _block(self, images: EncodedBatch, texts: EncodedBatch) -> Tensor:
        """Score all pairs at once."""
        similarity = torch.einsum("tld,ikd->itlk", texts.tokens, images.tokens)
        weights = self._weights(similarity, texts.mask, images.mask.unsqueeze(1))
        # Real words only from here on: this is the most expensive part.
        weights = weights.flatten(1, 2).index_select(1, _real_words(texts))
        attended = weights @ images.tokens  # (images, real words, dim)
        return self._compare(attended, texts)

    def _weights(self, similarity: Tensor, word_mask: Tensor, region_mask: Tensor) -> Tensor:
        temperature, form = self.config.temperature, self.config.form
        return attention_weights(
            _at_least_float32(similarity), word_mask, region_mask, temperature, form
        )

    def _compare(self, attended: Tensor, texts: EncodedBatch) -> Tensor:
        """Map the (..., N, dim) attended vectors of the real words to (..., texts) scores."""
        official = self.config.form == "official"
        attended = _at_least_float32(attended)
        if official:
            attended = F.normalize(attended, dim=-1, eps=_EPSILON)
        words = texts.tokens.flatten(0, 1).index_select(0, _real_words(texts))  # (N, dim)
        compared = _at_least_float32(self.comparison((words - attended).square()))
        compared = F.normalize(compared, dim=-1, eps=_EPSILON)  # (..., N, dim of W_1)
        text_of_word = texts.mask.nonzero()[:, 0]
        shape = (*compared.shape[:-2], texts.size, compared.shape[-1])
        pooled = compared.new_zeros(shape).index_add(-2, text_of_word, compared)
        pooled = pooled / texts.mask.sum(dim=1, keepdim=True).clamp_min(1)  # (..., texts, dim)
        if official:
            pooled = F.normalize(pooled, dim=-1, eps=_EPSILON)
        # In full precision: bfloat16 would make the best pairs equal, as their scores are close to
        # 1.
        with torch.autocast(pooled.device.type, enabled=False):
            return torch.tanh(self.output(pooled)).squeeze(-1)


def _split(items: EncodedBatch, size: int) -> list[EncodedBatch]:
    """Split a batch into batches of at most `size`; an empty one is not split."""
    starts = range(0, max(1, items.size), size)
    return [items.rows(slice(start, start + size)) for start in starts]


def _real_words(texts: EncodedBatch) -> Tensor:
    """Return the positions of the real words among all texts' words."""
    return texts.mask.flatten().nonzero().squeeze(1)


def _at_least_float32(values: Tensor) -> Tensor:
    return values.to(torch.promote_types(values.dtype, torch.float32))

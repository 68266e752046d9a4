"""Encoded batches, and the scores of pairs: cosines, and late interaction (ALADIN eqs 1-2).

The functions are pure functions of tensors; tokens must be normalised by the caller.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from aladin_network.errors import ShapeError
from aladin_network.scoring.encoding import Encoding
from aladin_network.scoring.masking import fill_padding, lengthened

# Upper limit in bytes of the similarity block (words x images x regions) of one chunk.
MEMORY_BUDGET_BYTES = 256 * 2**20


class EncodedBatch(NamedTuple):
    """A batch of encoded images or texts, as the network computes it.

    Attributes:
        embedding: L2-normalised; the vector of the first stage.
        tokens: L2-normalised; the regions or words of the second stage.
        mask: True at real tokens.
    """

    embedding: Float[Tensor, "batch d_match"]
    tokens: Float[Tensor, "batch tokens d_align"]
    mask: Bool[Tensor, "batch tokens"]

    @property
    def size(self) -> int:
        """Number of items."""
        return self.embedding.shape[0]

    def rows(self, rows: slice | Tensor) -> EncodedBatch:
        """Take some items."""
        return EncodedBatch(self.embedding[rows], self.tokens[rows], self.mask[rows])

    def to(self, device: torch.device | str) -> EncodedBatch:
        """Move to a device."""
        return EncodedBatch(*(part.to(device) for part in self))

    def item_tokens(self, row: int) -> Float[Tensor, "real d_align"]:
        """Return the real tokens of one item."""
        return self.tokens[row][self.mask[row]]

    @classmethod
    def of(cls, encoding: Encoding) -> EncodedBatch:
        """Convert arrays, whose memory the tensors share."""
        return cls(*(torch.from_numpy(part) for part in encoding))

    def arrays(self) -> Encoding:
        """Convert to arrays in float32, in the processor's memory, without gradients."""
        embedding, tokens = (
            part.detach().float().cpu().numpy() for part in (self.embedding, self.tokens)
        )
        return Encoding(embedding, tokens, self.mask.cpu().numpy())


def concatenate(parts: Sequence[EncodedBatch]) -> EncodedBatch:
    """Join batches of different token counts; shorter ones are padded.

    Args:
        parts: Batches, at least one.

    Returns:
        One batch of all items, in order.
    """
    longest = max(part.mask.shape[1] for part in parts)
    return EncodedBatch(
        embedding=torch.cat([part.embedding for part in parts]),
        tokens=torch.cat([lengthened(part.tokens, longest) for part in parts]),
        mask=torch.cat([lengthened(part.mask, longest) for part in parts]),
    )


def maxsim(
    words: Float[Tensor, "texts words dim"],
    regions: Float[Tensor, "images regions dim"],
    word_mask: Bool[Tensor, "texts words"],
    region_mask: Bool[Tensor, "images regions"],
    memory_budget_bytes: int = MEMORY_BUDGET_BYTES,
) -> Float[Tensor, "texts images"]:
    """Score every text against every image by late interaction (ALADIN eq 2).

    Each real word takes its best real region; the words' scores are summed. Only which region
    was best is kept for the backward pass, so the memory budget holds in training too.

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
        memory_budget_bytes: Upper bound of the memory of the similarity block held at any time.

    Returns:
        Scores in [-words, words], float32 or wider; larger is more similar. An image with
        no real region scores 0.
    """
    if regions.shape[1] == 0:
        return words.new_zeros(words.shape[0], regions.shape[0])
    words, regions = _to_autocast(words), _to_autocast(regions)
    # On a GPU a training step would wait for the number of real words to be counted, which takes
    # longer than the padding of a batch; and sums of packed words come in any order there.
    padded = words.is_cuda and torch.is_grad_enabled()
    score = padded_maxsim if padded else packed_maxsim
    return score(words, regions, word_mask, region_mask, memory_budget_bytes)


def packed_maxsim(
    words: Float[Tensor, "texts words dim"],
    regions: Float[Tensor, "images regions dim"],
    word_mask: Bool[Tensor, "texts words"],
    region_mask: Bool[Tensor, "images regions"],
    memory_budget_bytes: int,
) -> Float[Tensor, "texts images"]:
    """Compute `maxsim` of the real words alone: padding costs nothing."""
    packed = words[word_mask]  # (real words, dim)
    text_of_word = word_mask.nonzero()[:, 0]
    best = _best_region(packed, regions, region_mask, memory_budget_bytes)  # (real words, images)
    scores = best.new_zeros(words.shape[0], regions.shape[0])
    return scores.index_add(0, text_of_word, best)


def padded_maxsim(
    words: Float[Tensor, "texts words dim"],
    regions: Float[Tensor, "images regions dim"],
    word_mask: Bool[Tensor, "texts words"],
    region_mask: Bool[Tensor, "images regions"],
    memory_budget_bytes: int,
) -> Float[Tensor, "texts images"]:
    """Compute `maxsim` of all words and leave the padded ones out of the sum."""
    best = _best_region(words.flatten(0, 1), regions, region_mask, memory_budget_bytes)
    best = best.unflatten(0, word_mask.shape)  # (texts, words, images)
    return best.masked_fill(~word_mask.unsqueeze(-1), 0).sum(dim=1)


def _best_region(
    words: Float[Tensor, "words dim"],
    regions: Float[Tensor, "images regions dim"],
    region_mask: Bool[Tensor, "images regions"],
    memory_budget_bytes: int,
) -> Float[Tensor, "words images"]:
    """Return each word's similarity to the best region of each image, float32 or wider."""
    cells = memory_budget_bytes // words.element_size()
    images_a_chunk = max(1, cells // max(1, words.shape[0] * regions.shape[1]))
    best = _BestRegion.apply(words, regions, region_mask, images_a_chunk)
    return best.to(torch.promote_types(best.dtype, torch.float32))


def alignment_scores(
    images: EncodedBatch,
    texts: EncodedBatch,
    memory_budget_bytes: int = MEMORY_BUDGET_BYTES,
) -> Float[Tensor, "images texts"]:
    """Score all pairs of two batches; see `maxsim`.

    Args:
        images: Encoded images.
        texts: Encoded texts.
        memory_budget_bytes: Upper bound of the memory of the similarity block held at any time.

    Returns:
        ``scores[image, text]``.
    """
    # One image against all words at once must fit: very many texts are split into groups.
    row_bytes = texts.mask.shape[1] * images.mask.shape[1] * texts.tokens.element_size()
    group = max(1, memory_budget_bytes // max(1, row_bytes))
    columns = [
        maxsim(tokens, images.tokens, mask, images.mask, memory_budget_bytes)
        for tokens, mask in zip(texts.tokens.split(group), texts.mask.split(group), strict=True)
    ]
    return torch.cat(columns).T  # (images, texts)


def matching_scores(images: EncodedBatch, texts: EncodedBatch) -> Float[Tensor, "images texts"]:
    """Return the cosine of every image's embedding with every text's (ALADIN, matching head).

    Always in the embeddings' own number format: bfloat16 would round cosines to steps of 0.004,
    which the temperature of a contrastive loss blows up; and this product is small.
    """
    with torch.autocast(images.embedding.device.type, enabled=False):
        return images.embedding @ texts.embedding.T


def paired_maxsim(
    words: Float[Tensor, "pairs words dim"],
    regions: Float[Tensor, "pairs regions dim"],
    word_mask: Bool[Tensor, "pairs words"],
    region_mask: Bool[Tensor, "pairs regions"],
) -> Float[Tensor, " pairs"]:
    """Score each text against the image of its row: the diagonal of `maxsim`."""
    if regions.shape[1] == 0:
        return words.new_zeros(words.shape[0])
    similarity = _to_autocast(words) @ _to_autocast(regions).mT  # (pairs, words, regions)
    similarity = fill_padding(similarity, region_mask.unsqueeze(1))
    best = similarity.max(dim=-1).values  # (pairs, words)
    scored = word_mask & region_mask.any(dim=1, keepdim=True)
    best = best.to(torch.promote_types(best.dtype, torch.float32))
    return best.masked_fill(~scored, 0).sum(dim=1)


def paired_alignment_scores(images: EncodedBatch, texts: EncodedBatch) -> Float[Tensor, " pairs"]:
    """Score the pairs of two equally long batches, row by row; see `paired_maxsim`."""
    check_paired(images, texts)
    return paired_maxsim(texts.tokens, images.tokens, texts.mask, images.mask)


def paired_matching_scores(images: EncodedBatch, texts: EncodedBatch) -> Float[Tensor, " pairs"]:
    """Return the cosine of each image's and its row's text's embedding; see `matching_scores`."""
    check_paired(images, texts)
    return (images.embedding * texts.embedding).sum(dim=1)


def check_paired(images: EncodedBatch, texts: EncodedBatch) -> None:
    """Check that batches can be scored row by row."""
    if images.size != texts.size:
        raise ShapeError(f"{images.size} texts, one for each image", texts.size)


def _to_autocast(tokens: Tensor) -> Tensor:
    """Round to the precision of matrix products under autocast, if that is enabled."""
    if torch.is_autocast_enabled(tokens.device.type):
        return tokens.to(torch.get_autocast_dtype(tokens.device.type))
    return tokens


def _may_be_padded(mask: Tensor) -> bool:
    """Tell whether some tokens are padding; on a GPU, where looking means waiting, assume so."""
    return mask.is_cuda or not bool(mask.all())


class _BestRegion(torch.autograd.Function):
    """Maximum similarity of each word in each image, in chunks of images.

    Autograd would keep the whole similarity block, and scatter into a second one; the gradient
    needs no more than which region won.
    """

    @staticmethod
    def forward(  # type: ignore[override]
        ctx: Any,
        words: Tensor,
        regions: Tensor,
        region_mask: Tensor,
        images_a_chunk: int,
    ) -> Tensor:
        """Map (N, dim) words and (images, regions, dim) regions to (N, images) maxima."""
        best = words.new_empty(words.shape[0], regions.shape[0])
        winners = torch.empty_like(best, dtype=torch.long)
        padded = _may_be_padded(region_mask)
        for start in range(0, regions.shape[0], images_a_chunk):
            chunk = slice(start, start + images_a_chunk)
            similarity = words @ regions[chunk].flatten(0, 1).T  # (N, chunk * regions)
            similarity = similarity.unflatten(1, (-1, regions.shape[1]))
            if padded:
                similarity = fill_padding(similarity, region_mask[chunk])
            best[:, chunk], winners[:, chunk] = similarity.max(dim=-1)
        empty = ~region_mask.any(dim=1)
        ctx.save_for_backward(words, regions, winners, region_mask)
        ctx.images_a_chunk = images_a_chunk
        return best.masked_fill(empty, 0)

    @staticmethod
    def backward(ctx: Any, *grad_outputs: Tensor) -> tuple[Tensor | None, ...]:
        """Pass each maximum's gradient to its word and to the region of the maximum."""
        words, regions, winners, region_mask = ctx.saved_tensors
        grad = grad_outputs[0]
        if _may_be_padded(region_mask):
            # If padding is the maximum, the value is a constant.
            images = torch.arange(regions.shape[0], device=words.device)
            grad = grad.masked_fill(~region_mask[images, winners], 0)
        # With one side frozen, half of the products are enough.
        of_words, of_regions = ctx.needs_input_grad[:2]
        grad_words = torch.zeros_like(words) if of_words else None
        grad_regions = torch.empty_like(regions) if of_regions else None
        n_words, n_regions = words.shape[0], regions.shape[1]
        for start in range(0, regions.shape[0], ctx.images_a_chunk):
            chunk = slice(start, start + ctx.images_a_chunk)
            count = regions[chunk].shape[0]
            # One long index_copy is several times faster than scatter on CPUs.
            place = torch.arange(n_words * count, device=words.device) * n_regions
            place += winners[:, chunk].flatten()
            dense = grad.new_zeros(n_words * count * n_regions)
            dense.index_copy_(0, place, grad[:, chunk].flatten())
            dense = dense.view(n_words, count * n_regions)
            if grad_words is not None:
                grad_words += dense @ regions[chunk].flatten(0, 1)
            if grad_regions is not None:
                grad_regions[chunk] = (dense.T @ words).view(count, n_regions, -1)
        return grad_words, grad_regions, None, None

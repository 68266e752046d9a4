"""The first-stage head: the alignment of a text with a photo as one inner product.

It has the parameters and the arithmetic of `aladin_network.scoring.learned_stage`, for training: a
text's vector is a sum over features of its words, a photo's vector a linear function of its best
cosines with a bank of words. An index stores the photos' vectors and searches them.
"""

from __future__ import annotations

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn

from aladin_network.config import FirstStageHeadConfig
from aladin_network.errors import ConfigError
from aladin_network.scoring.learned_stage import LearnedStage
from aladin_network.scoring.scores import EncodedBatch, check_paired, maxsim


class FirstStageHead(nn.Module):
    """Vectors of texts and of photos; empty until parameters are loaded: all vectors are 0.

    For the words w of a text and the regions r of a photo, with the bank of words b_k::

        q = sum_w R^T (w, 1, relu(D^T w - s))        v = F (max_r b_k . r)_k - c        S = q . v
    """

    def __init__(self, config: FirstStageHeadConfig, token_dim: int) -> None:
        """Build an empty head.

        Args:
            config: Sizes of the head.
            token_dim: Size of the tokens of the alignment head.

        Raises:
            ConfigError: If a size is below 1.
        """
        super().__init__()
        for name, size in vars(config).items():
            if size < 1:
                raise ConfigError(f"first_stage: {name}: expected at least 1, got {size}")
        self.config = config
        features = token_dim + 1 + config.hidden
        self.directions = nn.Parameter(torch.empty(token_dim, config.hidden))
        self.shift = nn.Parameter(torch.empty(config.hidden))
        self.reduction = nn.Parameter(torch.empty(features, config.dim))
        self.words = nn.Parameter(torch.empty(config.bank, token_dim))
        self.factors = nn.Parameter(torch.empty(config.dim, config.bank))
        self.centre = nn.Parameter(torch.empty(config.dim))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Empty the head: its start is fitted to the tokens of a network, not drawn."""
        for values in self.parameters():
            nn.init.zeros_(values)

    @property
    def is_empty(self) -> bool:
        """Whether no parameters were loaded since the head was built or reset."""
        return not bool(self.factors.any())

    def load(self, stage: LearnedStage) -> None:
        """Take over fitted parameters; a bank of fewer words is filled up with zeros.

        Args:
            stage: Parameters of this head's sizes, with at most as many words.
        """
        self.reset_parameters()
        with torch.no_grad():
            for name, values in vars(stage).items():
                own = getattr(self, name)
                places = tuple(slice(size) for size in values.shape)
                own[places] = torch.from_numpy(values)

    def stage(self) -> LearnedStage:
        """Return the parameters as arrays."""
        arrays = {name: value.detach().cpu().numpy() for name, value in self.named_parameters()}
        return LearnedStage(**arrays)

    def text_vectors(
        self, words: Float[Tensor, "texts words token_dim"], mask: Bool[Tensor, "texts words"]
    ) -> Float[Tensor, "texts dim"]:
        """Return the vectors of texts: sums over their words.

        Args:
            words: Tokens of the texts.
            mask: True at real words.
        """
        hidden = torch.relu(words @ self.directions - self.shift)  # (texts, words, hidden)
        ones = torch.ones_like(words[..., :1])
        features = torch.cat([words, ones, hidden], dim=-1).masked_fill(~mask.unsqueeze(-1), 0)
        return features.sum(dim=1) @ self.reduction

    def photo_vectors(
        self,
        regions: Float[Tensor, "photos regions token_dim"],
        mask: Bool[Tensor, "photos regions"],
    ) -> Float[Tensor, "photos dim"]:
        """Return the vectors of photos.

        Args:
            regions: Tokens of the photos.
            mask: True at real regions.
        """
        real = mask.new_ones(len(self.words), 1)
        best = maxsim(self.words.unsqueeze(1), regions, real, mask)  # (bank, photos)
        return best.T @ self.factors.T - self.centre

    def forward(self, images: EncodedBatch, texts: EncodedBatch) -> Float[Tensor, "images texts"]:
        """Score all pairs of two batches.

        Returns:
            ``scores[image, text]``, the alignment but for a constant of each text.
        """
        photos, texts_ = self._vectors(images, texts)
        return photos @ texts_.T

    def paired(self, images: EncodedBatch, texts: EncodedBatch) -> Float[Tensor, " pairs"]:
        """Score each image with the text of its row: the diagonal of `forward`.

        Raises:
            ShapeError: If the batches differ in length.
        """
        check_paired(images, texts)
        photos, texts_ = self._vectors(images, texts)
        return (photos * texts_).sum(dim=1)

    def _vectors(self, images: EncodedBatch, texts: EncodedBatch) -> tuple[Tensor, Tensor]:
        # In float32: the steps of bfloat16 are coarser than what the scores of photos differ by.
        with torch.autocast(images.tokens.device.type, enabled=False):
            photos = self.photo_vectors(images.tokens.float(), images.mask)
            return photos, self.text_vectors(texts.tokens.float(), texts.mask)

"""Learned pooling of tokens to one vector, for the first stage of late-interaction networks."""

from __future__ import annotations

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn
from torch.nn import functional as F

from aladin_network.scoring.masking import fill_padding


class LearnedPooling(nn.Module):
    """A weighted mean of the content tokens, and of nonlinear features of each token::

        pooled = sum over tokens of a_t [x_t ; gelu(W x_t + b)],  a = softmax over t of v . x_t + c

    The sum of maxima of the alignment is no scalar product of two means. Features of single tokens
    bring the embedding closer to it: a feature stands for a part of the space of tokens, and its
    mean for how much of an item is there (LEMUR, arXiv 2601.21853, fits such features too). Before
    it is trained, all weights are equal, so that its first part is the mean.

    Attributes:
        out_dim: Size of the pooled vector.
    """

    def __init__(self, dim: int, hidden: int) -> None:
        """Build with equal weights and random features.

        Args:
            dim: Size of a token.
            hidden: Number of features of a token.
        """
        super().__init__()
        self.score = nn.Linear(dim, 1)
        self.features = nn.Linear(dim, hidden)
        self.out_dim = dim + hidden
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Make the weights of all tokens equal; the features reset themselves."""
        nn.init.zeros_(self.score.weight)
        nn.init.zeros_(self.score.bias)

    def forward(
        self, states: Float[Tensor, "batch tokens dim"], content: Bool[Tensor, "batch tokens"]
    ) -> Float[Tensor, "batch out"]:
        """Pool the content tokens; an item without any gives zeros."""
        scores = fill_padding(self.score(states).squeeze(-1).float(), content)
        weights = torch.nan_to_num(scores.softmax(dim=-1)).to(states.dtype)  # (batch, tokens)
        both = torch.cat([states, F.gelu(self.features(states))], dim=-1)
        return (weights.unsqueeze(1) @ both).squeeze(1)

"""A module that a configuration may freeze."""

from __future__ import annotations

import hashlib

from torch import nn
from torch.nn.modules.batchnorm import _BatchNorm  # pyright: ignore[reportPrivateUsage]


class Freezable(nn.Module):
    """Base of the encoders: when frozen, no gradient and evaluation mode always.

    Evaluation mode matters beyond dropout: a converted network may keep placeholders in its
    batch norms' running statistics.

    Attributes:
        frozen: whether it is.
        fixed_statistics: its batch norms keep their running statistics, frozen or not.
    """

    def __init__(self, frozen: bool) -> None:
        super().__init__()
        self.frozen = frozen
        self.fixed_statistics = False

    def freeze(self) -> None:
        """Apply the configured freeze, once the weights are in place."""
        if self.frozen:
            self.requires_grad_(False)
            self.eval()

    def train(self, mode: bool = True) -> Freezable:
        """Switch the mode; a frozen module stays in evaluation mode."""
        super().train(mode and not self.frozen)
        if self.fixed_statistics:
            for module in self.modules():
                if isinstance(module, _BatchNorm):
                    module.eval()
        return self

    def weights_digest(self) -> str:
        """Return the sha256 of all weights and buffers, by name."""
        digest = hashlib.sha256()
        for name, tensor in sorted(self.state_dict().items()):
            digest.update(f"{name}:{tuple(tensor.shape)}:{tensor.dtype};".encode())
            digest.update(tensor.detach().cpu().contiguous().numpy().tobytes())
        return digest.hexdigest()

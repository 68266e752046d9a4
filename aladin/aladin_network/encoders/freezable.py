"""Base of the encoders: frozen or trained, with or without fixed batch norms."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping

from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm  # pyright: ignore[reportPrivateUsage]


class Freezable(nn.Module):
    """Base of the encoders: when frozen, no gradient and evaluation mode always.

    Evaluation mode matters beyond dropout: a converted network may keep placeholders in its
    batch norms' running statistics.

    Attributes:
        frozen: Whether the module is frozen.
        fixed_statistics: Whether the batch norms keep their running statistics, frozen or not.
    """

    def __init__(self, frozen: bool) -> None:
        super().__init__()
        self.frozen = frozen
        self.fixed_statistics = False
        self._digested: tuple[object, str] | None = None

    def freeze(self) -> None:
        """Freeze if configured, once the weights are loaded."""
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
        """Return the sha256 of all weights and buffers, by name.

        It is computed anew only if a tensor has been replaced or raised its version, since training
        asks for it at every stage and for every data set. Fused optimizers and changes of `data`
        change a tensor and not its version: call `forget_digest` before and after training.
        """
        weights = self.state_dict()
        present = [(each.data_ptr(), each._version) for each in weights.values()]  # pyright: ignore[reportPrivateUsage]
        if self._digested is None or self._digested[0] != present:
            self._digested = present, digest_of(weights)
        return self._digested[1]

    def forget_digest(self) -> None:
        """Compute the next digest anew, whether or not a change of the weights can be seen."""
        self._digested = None


def digest_of(tensors: Mapping[str, Tensor]) -> str:
    """Return the sha256 of tensors, by name."""
    digest = hashlib.sha256()
    for name, tensor in sorted(tensors.items()):
        digest.update(f"{name}:{tuple(tensor.shape)}:{tensor.dtype};".encode())
        digest.update(tensor.detach().cpu().contiguous().numpy().tobytes())
    return digest.hexdigest()

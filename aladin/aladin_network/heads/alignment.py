"""The alignment head: region and word tokens for late interaction (ALADIN eqs 1-2)."""

from __future__ import annotations

from jaxtyping import Bool, Float
from torch import Tensor, nn
from torch.nn import functional as F

from aladin_network.config import AlignmentHeadConfig
from aladin_network.encoders.base import Features
from aladin_network.types import Modality


class AlignmentHead(nn.Module):
    """Selects, projects and normalises the tokens that `aladin_network.scoring.scores.maxsim`
    compares.

    The paper's head has no parameters (``dim=None``); a projection makes the token store
    small enough to keep for millions of images.

    The official code scores 0 where an image has fewer regions than the widest of its batch, and
    takes the best of these zeros too (A-5). At evaluation every image is padded, so that is one
    more region of zeros; here every image gets that region, whatever the batch, so that code
    that compares tokens needs no special case.

    Attributes:
        zero_tokens: Number of zero tokens appended to an image's own tokens: 1 or 0.
    """

    def __init__(self, config: AlignmentHeadConfig, image_width: int, text_width: int) -> None:
        super().__init__()
        self.config = config
        self.projections = nn.ModuleDict()
        if config.dim is not None:
            self.projections["image"] = nn.Linear(image_width, config.dim)
            self.projections["text"] = nn.Linear(text_width, config.dim)
        self.dim = config.dim if config.dim is not None else image_width
        self.zero_tokens = int(config.empty_fill == "zero")

    def forward(
        self, features: Features, modality: Modality
    ) -> tuple[Float[Tensor, "batch content dim"], Bool[Tensor, "batch content"]]:
        """Return the tokens of a batch and their mask, without the aggregate of element 0."""
        states, content = features.states[:, 1:], features.content[:, 1:]
        if modality == "text" and self.config.official_trim:
            content = _without_last(content)
        if modality in self.projections:
            states = self.projections[modality](states)
        if self.config.normalize:
            states = F.normalize(states.float(), dim=-1)
        if modality == "image" and self.zero_tokens:
            states = F.pad(states, (0, 0, 0, 1))  # (batch, regions + 1, dim)
            content = F.pad(content, (0, 1), value=True)
        return states, content


def _without_last(content: Bool[Tensor, "batch content"]) -> Bool[Tensor, "batch content"]:
    """Unmark each row's last True; a row with none stays as it is."""
    seen_from_the_end = content.flip(1).cumsum(1).flip(1)  # 1 from the last True's place back
    return content & (seen_from_the_end > 1)
